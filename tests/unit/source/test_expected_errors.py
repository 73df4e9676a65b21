"""Expected errors leave Spark's Python processes by their message alone; bugs keep their frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructType

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.local import LocalServer
from sparkinesis.source.batch.shard_reads import BatchPartition
from sparkinesis.source.datasource import KinesisDataSource, ShardPartition
from sparkinesis.source.expected_errors import HIDE_TRACEBACK, told_by_its_message
from sparkinesis.source.planning.read_tasks import ToRead
from sparkinesis.stream.position import SHARD_END, TRIM_HORIZON, ShardRange
from tests.sink import SPARK_SCHEMA, arrow


@pytest.fixture(autouse=True)
def process_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks like one of Spark's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # so that the fixture restores it
    monkeypatch.delenv(HIDE_TRACEBACK)
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", SimpleNamespace(name="pyspark.daemon"), raising=False)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False) as running:
        yield running


@told_by_its_message()
def fail(error: Exception) -> None:
    raise error


def test_any_other_error_keeps_them() -> None:
    with pytest.raises(ValueError, match="a bug"):
        fail(ValueError("a bug"))
    assert HIDE_TRACEBACK not in os.environ


@pytest.mark.parametrize("name", ["pytest.__main__", "pysparkling.main", None])
def test_a_process_that_is_not_sparks_keeps_them(
    monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    spec = None if name is None else SimpleNamespace(name=name)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    with pytest.raises(OptionError):
        fail(OptionError("wrong"))
    assert HIDE_TRACEBACK not in os.environ


def missing(server: LocalServer) -> KinesisDataSource:
    """The source of a stream that does not exist."""
    return KinesisDataSource(
        {"streamName": "none", "endpoint": server.endpoint_url, "region": "us-east-1"}
    )


RANGE = ShardRange("shardId-000000000000", TRIM_HORIZON, SHARD_END)
OWN = StructType()
OTHER = StructType().add("a", LongType())

CALLS: dict[str, Callable[[LocalServer], Any]] = {
    "the options": lambda _: KinesisDataSource({"streamName": ""}),
    "a load": lambda _: KinesisDataSource({"zzz": ""}).schema(),
    "a batch reader": lambda server: missing(server).reader(OTHER),
    "a batch plan": lambda server: missing(server).reader(OWN).partitions(),
    "a batch task": lambda server: list(
        missing(server).reader(OWN).read(BatchPartition("none", RANGE, None))
    ),
    "a stream reader": lambda server: missing(server).streamReader(OTHER).initialOffset(),
    "its plan": lambda server: (
        missing(server).streamReader(OTHER).latestOffset({}, ReadAllAvailable())
    ),
    "its tasks": lambda server: missing(server).streamReader(OTHER).partitions({}, {}),
    "available now": lambda server: (
        missing(server).streamReader(OWN).prepareForTriggerAvailableNow()
    ),
    "a plan": lambda server: plan(missing(server)),
    "the tasks of a plan": lambda server: (
        missing(server).streamReader(OWN).partitions({}, {"a": 1})
    ),
    "a task": lambda server: list(
        missing(server).streamReader(OWN).read(ShardPartition("none", [ToRead(RANGE)], None))
    ),
    "a writer": lambda server: missing(server).writer(SPARK_SCHEMA, True),
    "a stream writer": lambda server: missing(server).streamWriter(SPARK_SCHEMA, True),
    "a write": lambda server: missing(server).writer(SPARK_SCHEMA, False).write(rows()),
    "a write of a stream": lambda server: (
        missing(server).streamWriter(SPARK_SCHEMA, False).write(rows())
    ),
}
"""Everything that Spark calls, on a stream that does not exist."""


def plan(source: KinesisDataSource) -> Any:
    reader = source.streamReader(OWN)
    return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def rows() -> Iterator[pa.RecordBatch]:
    yield arrow([("key", None, b"data")])


@pytest.mark.parametrize("what", CALLS)
def test_an_expected_error_of_every_call_hides_the_frames(server: LocalServer, what: str) -> None:
    with pytest.raises(SparkinesisError):
        CALLS[what](server)
    assert os.environ.get(HIDE_TRACEBACK) == "1"
