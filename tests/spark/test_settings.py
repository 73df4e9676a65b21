"""Settings of a session that change what a type's name, a cast or a default means change no row."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.functions import gunzip
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.row_columns import SCHEMA
from tests.spark.reading import python_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REINTERPRETED = {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
OTHERS = {
    "spark.sql.session.timeZone": "Pacific/Kiritimati",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.storeAssignmentPolicy": "STRICT",
    "spark.sql.charAsVarchar": "true",
    "spark.sql.preserveCharVarcharTypeInfo": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.sources.default": "json",
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, clock=ManualClock(1_790_000_000_123), limits=None) as running:
        yield running


def test_no_setting_changes_columns_rows_or_what_is_put(
    spark: SparkSession, server: LocalServer
) -> None:
    kinesis = server.client("kinesis", "eu-west-1")
    kinesis.create_stream(StreamName="flights", ShardCount=1)
    kinesis.put_record(StreamName="flights", PartitionKey="UA", Data=gzip.compress(b"on time"))
    place = {"AWS_ENDPOINT_URL": server.endpoint_url, "AWS_REGION": "eu-west-1"}
    with python_environment(spark, place):
        usual = _outcome(spark, server)
        ((key, text, at, *_),) = usual["of the table"]
        assert (key, text, at) == ("UA", b"on time", 1_790_000_000_123_000)
        assert {usual["read"], usual["streaming read"]} == {SCHEMA.simpleString()}
        for settings in (REINTERPRETED, OTHERS):
            for name, value in settings.items():
                spark.conf.set(name, value)
            try:
                assert _outcome(spark, server) == usual
            finally:
                for name in settings:
                    spark.conf.unset(name)


def _outcome(spark: SparkSession, server: LocalServer) -> dict[str, Any]:
    """Columns by each door, the rows of a table, and what a statement puts into another stream."""
    from pyspark.sql import functions as sf  # noqa: PLC0415

    kinesis = server.client("kinesis", "eu-west-1")
    kinesis.create_stream(StreamName="copy", ShardCount=1)
    for name in ("flights", "copy"):
        spark.sql(f"CREATE TABLE {name} USING kinesis OPTIONS (streamName '{name}')")
    try:
        spark.sql("INSERT INTO copy (partitionKey, data) SELECT partitionKey, data FROM flights")
        table = spark.table("flights")
        at = sf.unix_micros("approximateArrivalTimestamp")
        rows = table.select("partitionKey", gunzip("data"), at, *table.columns[2:]).collect()
        streaming = spark.readStream.format("kinesis").option("streamName", "flights").load()
        read = spark.read.format("kinesis").option("streamName", "flights").load()
        shard = {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(StreamName="copy", **shard)["ShardIterator"]
        put = kinesis.get_records(ShardIterator=iterator)["Records"]
        return {
            "read": read.schema.simpleString(),
            "streaming read": streaming.schema.simpleString(),
            "table": table.schema.simpleString(),
            "of the table": [tuple(map(_plain, row)) for row in rows],
            "put": [(one["PartitionKey"], one["Data"]) for one in put],
        }
    finally:
        for name in ("flights", "copy"):
            spark.sql(f"DROP TABLE {name}")
        kinesis.delete_stream(StreamName="copy")


def _plain(value: object) -> object:
    return bytes(value) if isinstance(value, bytearray) else value
