"""The options of the data source: the table of all options, their parsers, and checked values.

`option_table` lists all; `values` and `positions` parse. `checked_options` reports all that is
wrong in one error, and has the values for each use.

A new option has a row in `OPTIONS` and a field in `checked_options`, a row in docs/options.md (or
docs/writing.md), its tests in tests/promises.py, and an example and a bad value in
tests/unit/source/options/test_option_table.py; docs/coming-from says which options of others it
stands for. An option that Databricks' source has, too, has the same name if it means the same. One
that needs another option has it in `BESIDE` of tests/hostile/test_options.py. One that changes a
plan is a variant in tests/simulation/query/histories.py. A limit is a field of `Allowance`, for
which `getDefaultReadLimit` of `source/datasource` returns something.
"""
