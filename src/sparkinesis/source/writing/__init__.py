"""Writing: rows are checked and put on a stream by Spark tasks.

`rows` checks columns and makes user records, `write_task` puts them by `stream/putting`.
"""
