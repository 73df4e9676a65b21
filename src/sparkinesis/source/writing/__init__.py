"""Writing: rows are checked and put on a stream by Spark tasks."""
