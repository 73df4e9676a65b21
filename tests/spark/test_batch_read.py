"""``spark.read.format("kinesis")`` through Spark: rows, filters, and what an error looks like."""

from __future__ import annotations

import contextlib
import io
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.datasource import SCHEMA
from tests.streams import put, shard_ids, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_790_000_000_000


def read(spark: SparkSession, server: LocalServer, **options: str) -> DataFrame:
    return (
        spark.read.format("kinesis")
        .option("streamName", "flights")
        .option("endpoint", server.endpoint_url)
        .option("region", "us-east-1")
        .options(**options)
        .load()
    )


def test_rows_filters_and_plans(spark: SparkSession) -> None:
    clock = ManualClock(START_MS)
    with LocalServer(port=0, limits=False, clock=clock) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="flights", ShardCount=2)
        put(kinesis, "flights", [b"%04d" % n for n in range(1000)])
        split(kinesis, "flights")
        clock.advance(3_600_000)
        put(kinesis, "flights", [b"%04d" % n for n in range(1000, 1500)])
        frame = read(spark, server)
        assert frame.schema == spark.createDataFrame([], SCHEMA).schema
        assert frame.count() == 1500
        assert sorted(bytes(row.data) for row in frame.select("data").collect()) == [
            b"%04d" % n for n in range(1500)
        ]

        wanted = shard_ids(kinesis, "flights")[0]
        expected = frame.collect()
        server.kinesis.calls.clear()
        of_shard = frame.where(frame.shardId == wanted)
        assert of_shard.count() == sum(row.shardId == wanted for row in expected) > 0
        assert set(server.kinesis.calls.per_shard("GetRecords")) == {wanted}

        server.kinesis.calls.clear()
        later = datetime.fromtimestamp(START_MS / 1000, timezone.utc) + timedelta(minutes=30)
        recent = frame.where(frame.approximateArrivalTimestamp >= later)
        assert recent.count() == 500
        assert sum(call.records for call in server.kinesis.calls) < 1500
        before = frame.where(frame.approximateArrivalTimestamp < later)
        assert before.count() == 1000

        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            of_shard.explain()
        assert f"PushedFilters: [EqualTo(shardId,{wanted})" in text.getvalue(), text.getvalue()


def test_nothing_to_read_is_an_empty_frame(spark: SparkSession, server: LocalServer) -> None:
    server.client("kinesis").create_stream(StreamName="flights", ShardCount=1)
    assert read(spark, server).collect() == []
    assert read(spark, server, startingPosition="latest").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingPosition": "yesterday"}, "OptionError: The option startingPosition is"),
        ({"initialPosition": "latest"}, "The option initialPosition is for readStream, not for"),
        ({"startingPosition": '{"shardId-9": "7"}'}, "names shard shardId-9, which stream"),
    ],
)
def test_a_mistake_is_explained(
    spark: SparkSession, server: LocalServer, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    server.client("kinesis").create_stream(StreamName="flights", ShardCount=1)
    with pytest.raises(PySparkException) as caught:
        read(spark, server, **options).collect()
    assert said in str(caught.value)
