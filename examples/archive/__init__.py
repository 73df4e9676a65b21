"""From a stream to a data lake: Parquet files by day, written by record processors."""
