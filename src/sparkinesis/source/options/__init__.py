"""The options of the data source: the table of all options, their parsers, and checked values.

`option_table` lists all; `values`, `at_timestamp`, `stream_names` and `batch_boundary` parse;
`option_checks` reports all that fail in one error. Results: `read_options` and
`write_options`. `catalog_table` keeps those of SQL's tables.
"""
