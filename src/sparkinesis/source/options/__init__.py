"""The options of the data source: the table of all options, their parsers, and checked values."""
