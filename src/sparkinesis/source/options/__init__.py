"""The options of the data source: the table of all options, their parsers, and checked values.

`option_table` lists all; `values`, `positions` and `stream_names` parse. `checked_options` reports
all that is wrong in one error, and has the values for each use.
"""
