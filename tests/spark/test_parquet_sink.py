"""A query that follows a directory which record processors store Parquet files in."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from sparkinesis import Application, Checkpointer, ProcessorShard, RecordBatch, RecordProcessor
from sparkinesis.local import LocalServer
from sparkinesis.worker.options import WorkerOptions
from tests.journal import PATIENCE
from tests.lake import visible_rows
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SCHEMA = pa.schema([("n", pa.int64()), ("kind", pa.string())])
KINDS = ["plain", "a/b=c%d:e\u00e9 {f}", "", " [x]^'\"?*#\\\t"]
"""Each is a directory; the empty one is null to Spark, and to Hive."""


class Lake(RecordProcessor):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def initialize(self, shard: ProcessorShard) -> None:
        self._sink = shard.sink(
            self._folder, SCHEMA, partition_by=["kind"], max_bytes=2000, max_age=0.5
        )

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        numbers = [int(record.data) for record in batch.records]
        self._sink.write([{"n": n, "kind": KINDS[n % len(KINDS)]} for n in numbers])
        if self._sink.is_due:
            checkpointer.checkpoint()


@pytest.fixture
def running(server: LocalServer, stream_name: str, tmp_path: Path) -> Iterator[Any]:
    """The stream's client, with a worker that stores the stream's records."""
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    application = Application(
        stream_name,
        stream_name,
        functools.partial(Lake, tmp_path / "lake"),
        region="us-east-1",
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(idle_time=0.25, max_records=100),
    )
    worker = application.worker().start()
    yield kinesis
    worker.shutdown(10)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


def follow(spark: SparkSession, folder: Path, copy: Path) -> list[Row]:
    """Run the query once, and everything that it has written so far."""
    rows = spark.readStream.schema("n BIGINT, kind STRING").parquet(str(folder / "lake"))
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(copy))
    )
    assert query.awaitTermination(int(PATIENCE))
    return spark.read.parquet(str(copy)).collect()


def test_a_query_sees_each_record(
    spark: SparkSession, running: Any, stream_name: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    kinesis, folder = running, tmp_path / "lake"
    put(kinesis, stream_name, [b"%d" % n for n in range(400)])
    wait_for_rows(folder, 100)
    seen = [len(follow(spark, tmp_path, copy))]  # while more files come
    put(kinesis, stream_name, [b"%d" % n for n in range(400, 800)])
    seen.append(len(follow(spark, tmp_path, copy)))
    wait_for_rows(folder, 800)
    rows = follow(spark, tmp_path, copy)
    assert 100 <= seen[0] <= seen[1] <= len(rows)
    expected = [(n, KINDS[n % len(KINDS)] or None) for n in range(800)]
    assert sorted((row["n"], row["kind"]) for row in rows) == expected


def wait_for_rows(folder: Path, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while not folder.exists() or len(visible_rows(folder)) < count:
        assert time.monotonic() < until
        time.sleep(0.05)
