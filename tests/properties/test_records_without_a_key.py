"""Rows of records that were put without a partition key, on a stream that distributes itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import StructType

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import MODES, query_of
from tests.properties.conftest import World
from tests.sink import Row, write
from tests.streams import create_auto, shard_ids

AGGREGATED = {"aggregation": "true", "aggregationMaxSize": "2000"}


@pytest.fixture
def auto(kinesis: Any) -> Any:
    """With the stream ``auto``: records without a key, with one, and an aggregate."""
    create_auto(kinesis, "auto")
    (blob,) = aggregate([("a", None, b"a's"), ("b", "7", b"b's")])
    entries: list[dict[str, Any]] = [{"Data": b"%d" % n} for n in range(20)]
    entries += [{"Data": blob.data}, {"Data": b"keyed", "PartitionKey": "k"}]
    assert not kinesis.put_records(StreamName="auto", Records=entries)["FailedRecordCount"]
    return kinesis


EXPECTED = {
    **{b"%d" % n: None for n in range(20)},
    b"a's": "a",
    b"b's": "b",
    b"keyed": "k",
}


@pytest.mark.parametrize("mode", MODES)
def test_a_streaming_query_gives_null_for_the_key(world: World, auto: Any) -> None:
    world.clock.advance(60_000)
    reading = world.query(streamName="auto", maxRecordsPerTrigger="7")
    batches = list(reading.drain())
    assert len(batches) > 1
    rows = [row for batch in batches for row in batch.rows]
    assert len(rows) == len(EXPECTED)
    assert {row["data"]: row["partitionKey"] for row in rows} == EXPECTED


def test_a_batch_read_gives_them_and_filters_as_ever(auto: Any, server: LocalServer) -> None:
    options = {"streamName": "auto", "endpoint": server.endpoint_url, "region": "us-east-1"}
    source = KinesisDataSource({**options, "filterPushdown": "true"})
    found = {}
    for shard in shard_ids(auto, "auto"):
        reader: Any = source.reader(StructType())
        by_key = EqualTo(("partitionKey",), "k")
        # Spark itself looks at keys.
        assert list(reader.pushFilters([EqualTo(("shardId",), shard), by_key])) == [by_key]
        for task in reader.partitions():
            for row in pa.Table.from_batches(list(reader.read(task))).to_pylist():
                assert row["shardId"] == shard
                found[row["data"]] = row["partitionKey"]
    assert found == EXPECTED


@pytest.mark.parametrize("ordered", ["false", "true"])
def test_aggregates_are_written_once_to_a_stream_that_distributes_records_itself(
    kinesis: Any, server: LocalServer, clock: ManualClock, ordered: str, *, caplog: Any
) -> None:
    """None lands where its hash key would lead, and putting it again would not help."""
    create_auto(kinesis, "copy")
    rows: list[Row] = [(f"k{n % 30}", None, b"%05d" % n) for n in range(1000)]
    write(server.endpoint_url, [rows], streamName="copy", ordered=ordered, **AGGREGATED)
    clock.advance(60_000)
    batches = query_of(server, "copy").drain()
    found = [(row["partitionKey"], row["data"]) for batch in batches for row in batch.rows]
    assert Counter(found) == Counter((key, data) for key, _, data in rows)
    assert len([r for r in caplog.records if "distributes records itself" in r.message]) == 1
