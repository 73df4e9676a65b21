"""The columns of a read."""

SCHEMA = (
    "partitionKey STRING, data BINARY, stream STRING, shardId STRING, sequenceNumber STRING, "
    "approximateArrivalTimestamp TIMESTAMP, subSequenceNumber BIGINT, explicitHashKey STRING"
)
"""The columns as Spark's DDL; the first six have the names of Databricks' Kinesis source."""
NAMES = tuple(column.split()[0] for column in SCHEMA.split(", "))
