"""Batch reads: what lies between two positions, of every shard, and nothing else."""

from __future__ import annotations

import json
import pickle
import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual
from pyspark.sql.types import StructType

from sparkinesis.errors import DataLossError
from sparkinesis.local import ManualClock
from sparkinesis.source.batch_reader import KinesisBatchReader
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA
from tests.engine import Row
from tests.properties.conftest import World
from tests.streams import merge_neighbours, put, shard_ids, split

HOUR = 3_600_000


class Batch:
    """One batch read, as Spark makes it: filters, then the plan, then tasks elsewhere."""

    def __init__(self, filters: list[Filter], options: dict[str, str]) -> None:
        self._source = pickle.dumps(KinesisDataSource(options))
        planning = self._reader()
        self.left = list(planning.pushFilters(filters))
        self._planned = pickle.dumps(planning)
        self.tasks = pickle.dumps(planning.partitions())

    def _reader(self) -> KinesisBatchReader:
        source: KinesisDataSource = pickle.loads(self._source)
        return source.reader(StructType())

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for task in pickle.loads(self.tasks):
            batches = pickle.loads(self._planned).read(task)
            found += pa.Table.from_batches(batches, USER_RECORD_SCHEMA).to_pylist()
        return found


class Reads(World):
    """Batch reads, of the stream ``s`` unless told otherwise."""

    def batch(self, filters: list[Filter] | None = None, /, **options: str) -> Batch:
        defaults = {
            "streamName": "s",
            "endpoint": self.server.endpoint_url,
            "region": "us-east-1",
            "shardCallsPerSecond": "unlimited",
            "filterPushdown": "true",
        }
        return Batch(filters or [], {**defaults, **options})

    def read(self, *filters: Filter, **options: str) -> list[Row]:
        return self.batch(list(filters), **options).rows()


@pytest.fixture
def reads(world: World) -> Reads:
    return Reads(world.server, world.kinesis, world.clock, world.query)


def instant(ms: int) -> str:
    return when(ms).isoformat()


def when(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)


def datas(rows: list[Row]) -> list[bytes]:
    return sorted(row["data"] for row in rows)


def history(kinesis: Any, clock: ManualClock, seed: int, steps: int = 12) -> list[int]:
    """Puts, splits and merges over some minutes; returns the instants between them."""
    rng = random.Random(seed)
    instants = [clock()]
    count = 0
    for step in range(steps):
        more = rng.choice([0, 3, 40, 1500])
        put(kinesis, "s", [b"%05d" % n for n in range(count, count + more)])
        count += more
        clock.advance(rng.randrange(1, 30_000))
        if step % 4 == 1:
            split(kinesis, "s", rng)
        elif step % 4 == 3:
            merge_neighbours(kinesis, "s", rng)
        clock.advance(rng.randrange(1, 5_000))
        instants.append(clock())
    return instants


def ends(rows: list[Row]) -> str:
    """The last sequence number of each shard, as a user would find it out from the rows."""
    last: dict[str, str] = {}
    for row in rows:
        shard = row["shardId"]
        last[shard] = max(last.get(shard, ""), row["sequenceNumber"])
    return json.dumps(last)


def test_everything_is_read_once_from_shards_of_all_generations(reads: Reads) -> None:
    history(reads.kinesis, reads.clock, 1)
    reads.server.kinesis.empty_pages = 7
    rows = reads.read()
    written = len(rows)
    assert datas(rows) == [b"%05d" % n for n in range(written)]
    assert written > 3000
    assert len({row["shardId"] for row in rows}) > 5
    for shard in {row["shardId"] for row in rows}:
        numbers = [int(row["sequenceNumber"]) for row in rows if row["shardId"] == shard]
        assert numbers == sorted(numbers)


def test_a_backlog_that_takes_several_looks_is_one_task(reads: Reads) -> None:
    put(reads.kinesis, "s", [b"%05d" % n for n in range(25_000)], "k")
    reads.clock.advance(600_000)
    planned = reads.batch()
    assert len(pickle.loads(planned.tasks)) == 1
    assert datas(planned.rows()) == [b"%05d" % n for n in range(25_000)]


def test_a_plan_has_a_fixed_end(reads: Reads) -> None:
    put(reads.kinesis, "s", [b"%03d" % n for n in range(100)])
    planned = reads.batch()
    put(reads.kinesis, "s", [b"%03d" % n for n in range(100, 150)])
    split(reads.kinesis, "s")
    reads.clock.advance(2_000)
    put(reads.kinesis, "s", [b"%03d" % n for n in range(150, 200)])
    first = planned.rows()
    assert planned.rows() == first
    assert datas(first) == [b"%03d" % n for n in range(100)]


def test_instants_cut_reads_without_gap_or_overlap_and_the_end_is_exclusive(reads: Reads) -> None:
    instants = history(reads.kinesis, reads.clock, 2)
    whole = reads.read()
    cut: list[Row] = []
    for since, until in zip([0, *instants], [*instants, reads.clock() + HOUR], strict=True):
        rows = reads.read(startingPosition=instant(since), endingPosition=instant(until))
        assert all(when(since) <= row["approximateArrivalTimestamp"] < when(until) for row in rows)
        cut += rows
    assert len(cut) == len(whole)
    assert datas(cut) == datas(whole)


def test_the_end_of_one_read_is_the_start_of_the_next(reads: Reads) -> None:
    history(reads.kinesis, reads.clock, 3, 6)
    first = reads.read()
    history(reads.kinesis, reads.clock, 4, 6)
    whole = reads.read()
    # Of the shards with rows: of those without there is no number, and they are read as they are.
    assert datas(reads.read(endingPosition=ends(first))) == datas(first)
    second = reads.read(startingPosition=ends(first))
    assert datas(first + second) == datas(whole)
    both = reads.read(startingPosition=ends(first), endingPosition=ends(whole))
    assert datas(both) == datas(second)
    assert reads.read(startingPosition=ends(whole), endingPosition=ends(first)) == []


def test_latest_as_start_gives_nothing(reads: Reads) -> None:
    put(reads.kinesis, "s", [b"a", b"b"])
    assert reads.read(startingPosition="latest") == []
    assert reads.server.kinesis.calls.count("GetRecords") == 0


def test_a_map_goes_by_shard_and_may_hold_names(reads: Reads) -> None:
    one, other = shard_ids(reads.kinesis, "s")
    put(reads.kinesis, "s", [b"%03d" % n for n in range(50)])
    whole = reads.read()
    of_one = [row for row in whole if row["shardId"] == one]
    of_other = [row for row in whole if row["shardId"] == other]
    fifth = {one: of_one[4]["sequenceNumber"]}
    assert reads.read(startingPosition=json.dumps({**fifth, "*": "SHARD_END"})) == of_one[5:]
    assert reads.read(startingPosition=json.dumps(fifth)) == of_one[5:] + of_other
    assert reads.read(startingPosition=json.dumps({**fifth, other: "LATEST"})) == of_one[5:]
    assert reads.read(endingPosition=json.dumps({**fifth, other: "TRIM_HORIZON"})) == of_one[:5]
    assert reads.read(endingPosition=json.dumps(fifth)) == of_one[:5] + of_other
    assert reads.read(startingPosition=json.dumps({one: "SHARD_END"})) == of_other
    assert reads.read(endingPosition=json.dumps({one: "SHARD_END", other: "LATEST"})) == whole


def test_several_streams_are_read_and_a_map_names_them(reads: Reads) -> None:
    reads.kinesis.create_stream(StreamName="t", ShardCount=1)
    put(reads.kinesis, "s", [b"a", b"b"])
    put(reads.kinesis, "t", [b"c", b"d"])
    rows = reads.read(streamName="s,t")
    assert [(r["stream"], r["data"]) for r in rows if r["stream"] == "t"] == [
        ("t", b"c"),
        ("t", b"d"),
    ]
    assert datas(rows) == [b"a", b"b", b"c", b"d"]
    third = rows[2]
    end = json.dumps({"t": {third["shardId"]: third["sequenceNumber"]}})
    assert datas(reads.read(streamName="s,t", endingPosition=end)) == [b"a", b"b", b"c"]
    assert reads.read(EqualTo(("stream",), "t"), streamName="s,t") == rows[2:]


def test_an_expired_start_is_loud(reads: Reads) -> None:
    put(reads.kinesis, "s", [b"a"], "k")
    start = ends(reads.read())
    reads.clock.advance(1 * HOUR)
    put(reads.kinesis, "s", [b"lost"], "k")
    reads.clock.advance(25 * HOUR)
    put(reads.kinesis, "s", [b"b"], "k")
    with pytest.raises(DataLossError, match=r"has expired.*failOnDataLoss.*another startingPos"):
        reads.batch(startingPosition=start)
    assert datas(reads.read(startingPosition=start, failOnDataLoss="false")) == [b"b"]
    # In a closed shard, whose end needs no look, the task finds out.
    split(reads.kinesis, "s", index=0)
    split(reads.kinesis, "s", index=2)
    with pytest.raises(DataLossError, match=r"has expired.*failOnDataLoss.*another startingPos"):
        reads.read(startingPosition=start)
    with pytest.raises(DataLossError, match=r"has expired.*failOnDataLoss.*another startingPos"):
        reads.read(endingPosition=start)
    assert datas(reads.read(startingPosition=start, failOnDataLoss="false")) == [b"b"]


def test_a_start_before_the_oldest_record_is_no_loss(reads: Reads) -> None:
    put(reads.kinesis, "s", [b"gone"], "k")
    reads.clock.advance(30 * HOUR)
    put(reads.kinesis, "s", [b"a"], "k")
    long_ago = "2020-01-01T00:00:00Z"
    assert datas(reads.read(startingPosition=long_ago)) == [b"a"]
    assert datas(
        reads.read(startingPosition=long_ago, endingPosition=instant(reads.clock() + 1))
    ) == [b"a"]
    early = GreaterThanOrEqual(("approximateArrivalTimestamp",), when(reads.clock() - 26 * HOUR))
    listed = json.dumps(dict.fromkeys(shard_ids(reads.kinesis, "s"), "TRIM_HORIZON"))
    assert datas(reads.read(early, startingPosition="{}")) == [b"a"]
    assert datas(reads.read(early, startingPosition=listed)) == [b"a"]


@pytest.mark.parametrize("quiet_ms", [1000, 0])
@pytest.mark.parametrize("position", ["trim_horizon", "2026-09-20T00:00:00Z"])
def test_what_the_plan_of_a_read_saw_is_given_or_its_loss_is_told(
    reads: Reads, position: str, quiet_ms: int
) -> None:
    """Spark may run the tasks of a plan again, days later.

    While records come, a plan is made of several batches: the first ends short of the tip.
    """
    reads.kinesis.create_stream(StreamName="one", ShardCount=1)
    put(reads.kinesis, "one", [b"gone before"], "k")
    reads.clock.advance(25 * HOUR)
    # More than a look takes, so that the plan is made of several looks.
    put(reads.kinesis, "one", [b"%d" % number for number in range(1100)], "k")
    reads.clock.advance(20 * HOUR)
    for number in range(1100, 1110):
        put(reads.kinesis, "one", [b"%d" % number], "k")
        reads.clock.advance(100)
    reads.clock.advance(quiet_ms)
    plan = reads.batch(streamName="one", startingPosition=position)
    tolerant = reads.batch(streamName="one", startingPosition=position, failOnDataLoss="false")
    assert len(plan.rows()) == 1110
    reads.clock.advance(5 * HOUR)
    with pytest.raises(DataLossError, match=r"shardId-000000000000.*was removed before the batch"):
        plan.rows()
    assert datas(tolerant.rows()) == [b"%d" % number for number in range(1100, 1110)]
