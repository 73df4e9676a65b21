"""Batch reads: what lies between two positions, of every shard, and nothing else."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import StructType

from sparkinesis.errors import DataLossError, StreamNotFoundError
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.batch.batch_reader import KinesisBatchReader
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA
from tests.engine import Query, Row
from tests.streams import merge_neighbours, put, shard_ids, split

HOUR = 3_600_000

Read: TypeAlias = Callable[..., list[Row]]


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


@pytest.fixture
def batch(server: LocalServer) -> Callable[..., Batch]:
    def make(filters: list[Filter] | None = None, **options: str) -> Batch:
        defaults = {
            "streamName": "s",
            "endpoint": server.endpoint_url,
            "region": "us-east-1",
            "shardCallsPerSecond": "unlimited",
            "filterPushdown": "true",
        }
        return Batch(filters or [], {**defaults, **options})

    return make


@pytest.fixture
def read(batch: Callable[..., Batch]) -> Read:
    return lambda *filters, **options: batch(list(filters), **options).rows()


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


def test_everything_is_read_once_from_shards_of_all_generations(
    kinesis: Any, server: LocalServer, clock: ManualClock, read: Read
) -> None:
    history(kinesis, clock, 1)
    server.kinesis.empty_pages = 7
    rows = read()
    written = len(rows)
    assert datas(rows) == [b"%05d" % n for n in range(written)]
    assert written > 3000
    assert len({row["shardId"] for row in rows}) > 5
    for shard in {row["shardId"] for row in rows}:
        numbers = [int(row["sequenceNumber"]) for row in rows if row["shardId"] == shard]
        assert numbers == sorted(numbers)


def test_a_backlog_that_takes_several_looks_is_one_task(
    kinesis: Any, clock: ManualClock, batch: Callable[..., Batch]
) -> None:
    put(kinesis, "s", [b"%05d" % n for n in range(25_000)], "k")
    clock.advance(600_000)
    planned = batch()
    assert len(pickle.loads(planned.tasks)) == 1
    assert datas(planned.rows()) == [b"%05d" % n for n in range(25_000)]


def test_a_plan_has_a_fixed_end(
    kinesis: Any, clock: ManualClock, batch: Callable[..., Batch]
) -> None:
    put(kinesis, "s", [b"%03d" % n for n in range(100)])
    planned = batch()
    put(kinesis, "s", [b"%03d" % n for n in range(100, 150)])
    split(kinesis, "s")
    clock.advance(2_000)
    put(kinesis, "s", [b"%03d" % n for n in range(150, 200)])
    first = planned.rows()
    assert planned.rows() == first
    assert datas(first) == [b"%03d" % n for n in range(100)]


def test_instants_cut_reads_without_gap_or_overlap_and_the_end_is_exclusive(
    kinesis: Any, clock: ManualClock, read: Read
) -> None:
    instants = history(kinesis, clock, 2)
    whole = read()
    cut: list[Row] = []
    for since, until in zip([0, *instants], [*instants, clock() + HOUR], strict=True):
        rows = read(startingPosition=instant(since), endingPosition=instant(until))
        assert all(when(since) <= row["approximateArrivalTimestamp"] < when(until) for row in rows)
        cut += rows
    assert len(cut) == len(whole)
    assert datas(cut) == datas(whole)


def test_the_end_of_one_read_is_the_start_of_the_next(
    kinesis: Any, clock: ManualClock, read: Read
) -> None:
    history(kinesis, clock, 3, 6)
    first = read()
    history(kinesis, clock, 4, 6)
    whole = read()
    # Of the shards with rows: of those without there is no number, and they are read as they are.
    assert datas(read(endingPosition=ends(first))) == datas(first)
    second = read(startingPosition=ends(first))
    assert datas(first + second) == datas(whole)
    both = read(startingPosition=ends(first), endingPosition=ends(whole))
    assert datas(both) == datas(second)
    assert read(startingPosition=ends(whole), endingPosition=ends(first)) == []


def test_the_offset_of_a_streaming_query_is_a_start_and_an_end(
    kinesis: Any, clock: ManualClock, read: Read, query: Callable[..., Query]
) -> None:
    history(kinesis, clock, 5, 8)
    running = query()
    history(kinesis, clock, 6, 4)
    whole = datas(read())
    streamed: list[Row] = []
    for stream_batch in running.drain():
        streamed += stream_batch.rows
        offset = json.dumps(running.checkpoint)
        assert datas(read(endingPosition=offset)) == datas(streamed)
        assert datas(streamed + read(startingPosition=offset)) == whole


def test_latest_as_start_gives_nothing(kinesis: Any, server: LocalServer, read: Read) -> None:
    put(kinesis, "s", [b"a", b"b"])
    assert read(startingPosition="latest") == []
    assert server.kinesis.calls.count("GetRecords") == 0


def test_nothing_is_read_where_the_end_lies_before_the_start(
    kinesis: Any, server: LocalServer, clock: ManualClock, read: Read
) -> None:
    put(kinesis, "s", [b"a"], "k")
    first = read()
    clock.advance(10_000)
    put(kinesis, "s", [b"b"], "k")
    between, later = instant(clock() - 5_000), instant(clock() + HOUR)
    assert read(startingPosition=between, endingPosition=ends(first)) == []
    split(kinesis, "s", index=0)
    split(kinesis, "s", index=2)
    assert read(startingPosition=between, endingPosition=ends(first)) == []
    server.kinesis.calls.clear()
    assert read(startingPosition=between, endingPosition=between) == []
    assert read(startingPosition=later) == []
    assert read(startingPosition=later, endingPosition="2020-01-01T00:00:00Z") == []
    assert server.kinesis.calls.count("GetRecords") == 0


def test_a_map_goes_by_shard_and_may_hold_names(kinesis: Any, read: Read) -> None:
    one, other = shard_ids(kinesis, "s")
    put(kinesis, "s", [b"%03d" % n for n in range(50)])
    whole = read()
    of_one = [row for row in whole if row["shardId"] == one]
    of_other = [row for row in whole if row["shardId"] == other]
    fifth = {one: of_one[4]["sequenceNumber"]}
    assert read(startingPosition=json.dumps({**fifth, "*": "SHARD_END"})) == of_one[5:]
    assert read(startingPosition=json.dumps(fifth)) == of_one[5:] + of_other
    assert read(startingPosition=json.dumps({**fifth, other: "LATEST"})) == of_one[5:]
    assert read(endingPosition=json.dumps({**fifth, other: "TRIM_HORIZON"})) == of_one[:5]
    assert read(endingPosition=json.dumps(fifth)) == of_one[:5] + of_other
    assert read(startingPosition=json.dumps({one: "SHARD_END"})) == of_other
    assert read(endingPosition=json.dumps({one: "SHARD_END", other: "LATEST"})) == whole


def test_several_streams_are_read_and_a_map_names_them(kinesis: Any, read: Read) -> None:
    kinesis.create_stream(StreamName="t", ShardCount=1)
    put(kinesis, "s", [b"a", b"b"])
    put(kinesis, "t", [b"c", b"d"])
    rows = read(streamName="s,t")
    assert [(r["stream"], r["data"]) for r in rows if r["stream"] == "t"] == [
        ("t", b"c"),
        ("t", b"d"),
    ]
    assert datas(rows) == [b"a", b"b", b"c", b"d"]
    third = rows[2]
    end = json.dumps({"t": {third["shardId"]: third["sequenceNumber"]}})
    assert datas(read(streamName="s,t", endingPosition=end)) == [b"a", b"b", b"c"]
    assert read(EqualTo(("stream",), "t"), streamName="s,t") == rows[2:]


def test_an_expired_start_is_loud(
    kinesis: Any, clock: ManualClock, batch: Callable[..., Batch], read: Read
) -> None:
    put(kinesis, "s", [b"a"], "k")
    start = ends(read())
    clock.advance(1 * HOUR)
    put(kinesis, "s", [b"lost"], "k")
    clock.advance(25 * HOUR)
    put(kinesis, "s", [b"b"], "k")
    with pytest.raises(DataLossError, match=r"has expired.*failOnDataLoss.*another startingPos"):
        batch(startingPosition=start)
    assert datas(read(startingPosition=start, failOnDataLoss="false")) == [b"b"]
    # In a closed shard, whose end needs no look, the task finds out.
    split(kinesis, "s", index=0)
    split(kinesis, "s", index=2)
    with pytest.raises(DataLossError, match=r"has expired.*failOnDataLoss.*another startingPos"):
        read(startingPosition=start)
    with pytest.raises(DataLossError, match=r"has expired.*failOnDataLoss.*another startingPos"):
        read(endingPosition=start)
    assert datas(read(startingPosition=start, failOnDataLoss="false")) == [b"b"]


def test_a_start_before_the_oldest_record_is_no_loss(
    kinesis: Any, clock: ManualClock, read: Read
) -> None:
    put(kinesis, "s", [b"gone"], "k")
    clock.advance(30 * HOUR)
    put(kinesis, "s", [b"a"], "k")
    long_ago = "2020-01-01T00:00:00Z"
    assert datas(read(startingPosition=long_ago)) == [b"a"]
    assert datas(read(startingPosition=long_ago, endingPosition=instant(clock() + 1))) == [b"a"]
    early = GreaterThanOrEqual(("approximateArrivalTimestamp",), when(clock() - 26 * HOUR))
    listed = json.dumps(dict.fromkeys(shard_ids(kinesis, "s"), "TRIM_HORIZON"))
    assert datas(read(early, startingPosition="{}")) == [b"a"]
    assert datas(read(early, startingPosition=listed)) == [b"a"]


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_a_shard_that_is_not_there_is_named(
    kinesis: Any, batch: Callable[..., Batch], read: Read, option: str
) -> None:
    put(kinesis, "s", [b"a"])
    map_of_shards = json.dumps({"shardId-000000000077": "495900"})
    with pytest.raises(DataLossError) as caught:
        batch(**{option: map_of_shards})
    assert f"The option {option} names shard shardId-000000000077" in str(caught.value)
    assert "stream 's' in us-east-1" in str(caught.value)
    assert datas(read(**{option: map_of_shards, "failOnDataLoss": "false"})) == [b"a"]


def test_a_missing_stream_is_told(server: LocalServer, batch: Callable[..., Batch]) -> None:
    with pytest.raises(StreamNotFoundError, match="There is no stream 'q'"):
        batch(streamName="q")


def test_shards_that_a_filter_excludes_are_not_called(
    kinesis: Any, server: LocalServer, clock: ManualClock, read: Read, batch: Callable[..., Batch]
) -> None:
    history(kinesis, clock, 7)
    whole = read()
    listed = shard_ids(kinesis, "s")
    chosen = [listed[0], listed[3], listed[-1]]
    server.kinesis.calls.clear()
    wanted = In(("shardId",), tuple(chosen))
    planned = batch([wanted])
    assert planned.left == []
    assert planned.rows() == [row for row in whole if row["shardId"] in chosen]
    assert set(server.kinesis.calls.per_shard("GetRecords")) == set(chosen)
    assert set(server.kinesis.calls.per_shard("GetShardIterator")) == set(chosen)


def test_a_map_can_choose_shards_as_well(
    kinesis: Any, server: LocalServer, clock: ManualClock, read: Read
) -> None:
    history(kinesis, clock, 8)
    whole = read()
    listed = shard_ids(kinesis, "s")
    for chosen in (listed[0], listed[-1]):
        server.kinesis.calls.clear()
        rows = read(startingPosition=json.dumps({chosen: "TRIM_HORIZON", "*": "SHARD_END"}))
        assert rows == [row for row in whole if row["shardId"] == chosen]
        assert set(server.kinesis.calls.per_shard("GetRecords")) == {chosen}


def test_a_filter_on_time_reads_less_and_stays_with_spark(
    kinesis: Any, server: LocalServer, clock: ManualClock, batch: Callable[..., Batch]
) -> None:
    for minute in range(30):
        put(kinesis, "s", [b"%02d-%04d" % (minute, n) for n in range(400)])
        clock.advance(60_000)
        if minute == 15:
            split(kinesis, "s")
    start = clock() - 20 * 60_000
    column = ("approximateArrivalTimestamp",)
    filters: list[Filter] = [
        GreaterThanOrEqual(column, when(start)),
        LessThan(column, when(start + 120_000)),
    ]

    def kept(row: Row) -> bool:
        arrival: datetime = row["approximateArrivalTimestamp"]
        return when(start) <= arrival < when(start + 120_000)

    server.kinesis.calls.clear()
    whole = batch(maxRecordsPerFetch="400").rows()
    everything = sum(call.records for call in server.kinesis.calls)
    server.kinesis.calls.clear()
    narrowed = batch(filters, maxRecordsPerFetch="400")
    assert narrowed.left == filters
    rows = narrowed.rows()
    fetched = sum(call.records for call in server.kinesis.calls)
    assert [row for row in rows if kept(row)] == [row for row in whole if kept(row)]
    assert len(rows) == 3 * 400, "two minutes, and one by which arrival times may be out of order"
    assert fetched < everything / 2


@pytest.mark.parametrize("quiet_ms", [1000, 0])
@pytest.mark.parametrize("position", ["trim_horizon", "2026-09-20T00:00:00Z"])
def test_what_the_plan_of_a_read_saw_is_given_or_its_loss_is_told(
    kinesis: Any, clock: ManualClock, batch: Callable[..., Batch], position: str, quiet_ms: int
) -> None:
    """Spark may run the tasks of a plan again, days later.

    While records come, a plan is made of several batches: the first ends short of the tip.
    """
    kinesis.create_stream(StreamName="one", ShardCount=1)
    put(kinesis, "one", [b"gone before"], "k")
    clock.advance(25 * HOUR)
    # More than a look takes, so that the plan is made of several looks.
    put(kinesis, "one", [b"%d" % number for number in range(1100)], "k")
    clock.advance(20 * HOUR)
    for number in range(1100, 1110):
        put(kinesis, "one", [b"%d" % number], "k")
        clock.advance(100)
    clock.advance(quiet_ms)
    plan = batch(streamName="one", startingPosition=position)
    tolerant = batch(streamName="one", startingPosition=position, failOnDataLoss="false")
    assert len(plan.rows()) == 1110
    clock.advance(5 * HOUR)
    with pytest.raises(DataLossError, match=r"shardId-000000000000.*was removed before the batch"):
        plan.rows()
    assert datas(tolerant.rows()) == [b"%d" % number for number in range(1100, 1110)]
