"""The Spark data source ``kinesis``: streaming and batch reads, and writes."""
