"""Parquet files that a record processor writes, stored before each checkpoint."""
