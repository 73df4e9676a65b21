"""Tables of Spark's catalog: their columns carry the options of the source."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import StructType

from sparkinesis.source.row_columns import (
    check_new_table,
    new_table_options,
    table_options,
    table_schema,
)

TABLES: dict[str, dict[str, str]] = {
    "a stream by its name": {"streamName": "flights", "region": "eu-west-1"},
    "a stream by its ARN, read as a role": {
        "streamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/flights",
        "roleArn": "arn:aws:iam::123456789012:role/reader",
        "initialPosition": "trim_horizon",
        "maxRecordsPerTrigger": "1000",
    },
    "several streams": {"streamName": "flights,gates", "region": "eu-west-1"},
}
"""The OPTIONS of ``CREATE TABLE flights USING kinesis``."""


def write() -> dict[str, Any]:
    """Return the schema that the catalog stores for each table, as Spark's JSON has it."""
    found = {}
    for name, given in TABLES.items():
        # Spark hands over each option twice: see `new_table_options`.
        properties = given | {f"option.{option}": value for option, value in given.items()}
        options = new_table_options(properties | {"provider": "kinesis"})
        check_new_table(options)
        found[name] = table_schema(options).jsonValue()
    return found


def read(schema: Any) -> dict[str, str]:
    """Return the options that a query of the table has."""
    return table_options(StructType.fromJson(schema))
