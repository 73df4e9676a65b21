"""P10: batches advance in time together, so that a watermark on the arrival time drops nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, ManualClock
from tests.engine import MODES, Batch, late
from tests.planners import Time, timed
from tests.properties.conftest import World
from tests.streams import active_shards, merge_neighbours, put_all, put_at, split

BOTH_MODES = pytest.mark.parametrize("mode", MODES)
HASH_KEYS = 2**128
LIGHT, BUSY = 0, HASH_KEYS - 1
"""Hash keys of the two shards of a stream: few records, and many."""


def put_many(kinesis: Any, stream: str, count: int, hash_key: int, size: int = 10) -> None:
    entry = {"Data": b"x" * size, "PartitionKey": "k", "ExplicitHashKey": str(hash_key)}
    put_all(kinesis, stream, [entry] * count)


def put_skewed(kinesis: Any, clock: ManualClock, stream: str, seconds: int, rate: int = 50) -> int:
    """A busy shard and a light one, of ``rate`` and one records a second; how many records."""
    for _ in range(seconds):
        put_many(kinesis, stream, rate, BUSY)
        put_many(kinesis, stream, 1, LIGHT)
        clock.advance(1000)
    return seconds * (rate + 1)


def rows(batches: Iterable[Batch]) -> int:
    return sum(len(batch.rows) for batch in batches)


@BOTH_MODES
@pytest.mark.parametrize(
    "limit", [{"maxRecordsPerTrigger": "1000"}, {"maxBytesPerTrigger": "10k"}], ids=["rows", "size"]
)
def test_p10_a_light_shard_is_not_read_ahead_of_a_busy_one(
    world: World, limit: dict[str, str]
) -> None:
    count = put_skewed(world.kinesis, world.clock, "s", 200)
    batches = list(world.query(**limit).drain())
    assert rows(batches) == count
    assert late(batches) == []
    assert 10 <= len(batches) <= 13


def test_p10_is_given_up_where_drift_is_unbounded(world: World) -> None:
    count = put_skewed(world.kinesis, world.clock, "s", 200)
    batches = list(world.query(maxRecordsPerTrigger="1000", maxShardDrift="unbounded").drain())
    assert rows(batches) == count
    assert late(batches)


def test_p10_shards_are_apart_by_the_drift_at_most(world: World) -> None:
    count = put_skewed(world.kinesis, world.clock, "s", 200)
    batches = list(world.query(maxRecordsPerTrigger="1000", maxShardDrift="20 seconds").drain())
    assert rows(batches) == count
    assert late(batches)
    assert late(batches, timedelta(seconds=20)) == []


def reshard(kinesis: Any, stream: str, rng: random.Random) -> None:
    shards = len(active_shards(kinesis, stream))
    if shards < 2 or (shards < 6 and rng.random() < 0.6):
        split(kinesis, stream, rng)
    else:
        merge_neighbours(kinesis, stream, rng)


def put_history(
    kinesis: Any, clock: ManualClock, streams: list[str], rng: random.Random, steps: int
) -> Iterator[int]:
    """Records of random shards, bursts, silences and reshards; how many records at each step."""
    for _ in range(steps):
        count = 0
        for stream in streams:
            for _ in range(rng.randrange(3)):
                more = rng.choice([1, 2, 30, 300])
                put_many(kinesis, stream, more, int(HASH_KEYS * rng.random() ** 3))
                count += more
            if rng.random() < 0.2:
                reshard(kinesis, stream, rng)
        clock.advance(rng.choice([1, 50, 700, 5000, 60_000]))
        yield count


@BOTH_MODES
def test_p10_a_replay_gives_the_same_rows_up_to_a_record_that_arrived_later(
    world: World, mode: str
) -> None:
    """The light shard's next record is half an hour younger than the end of the batch."""
    put_at(world.kinesis, "s", b"first", LIGHT)
    for _ in range(50):
        put_many(world.kinesis, "s", 100, BUSY)
        world.clock.advance(1000)
        put_at(world.kinesis, "s", b"light", LIGHT)
    world.clock.advance(1_800_000)
    put_at(world.kinesis, "s", b"much later", LIGHT)
    world.clock.advance(5000)
    batches = list(world.query(maxRecordsPerTrigger="2000").drain())
    assert late(batches) == []
    assert rows(batches) == 5052
    other = world.query(by=next(by for by in MODES if by != mode))
    for batch in batches:
        assert other.read(batch.start, batch.end).rows == batch.rows


def test_p10_a_batch_ends_before_a_record_that_is_not_read(world: World) -> None:
    """Where the planner knows the first later record only, the offset names that record."""
    for _ in range(500):
        put_many(world.kinesis, "s", 10, LIGHT)
        put_many(world.kinesis, "s", 10, BUSY)
        world.clock.advance(1000)
    world.clock.advance(1_800_000)
    later = put_at(world.kinesis, "s", b"much later", LIGHT)
    put_many(world.kinesis, "s", 20_000, BUSY)
    world.clock.advance(5000)
    running = world.query(maxRecordsPerTrigger="15000")
    first = running.batch()
    ends = {text.partition("@")[0] for text in first.end["s"].values()}
    assert f"{later}:-1" in ends
    batches = [first, *running.drain()]
    assert late(batches) == []
    assert rows(batches) == 30_001


@pytest.mark.parametrize("seconds", [0, 1, 10])
def test_p10_rows_are_late_by_the_disorder_of_the_service_at_most(
    world: World, seconds: int
) -> None:
    """The API reference does not promise that arrival times are in order within a shard."""
    rng = random.Random(seconds)

    def early(call: Call) -> Fault | None:
        skew = -rng.randrange(seconds * 1000 + 1)
        return Fault(arrival_skew_ms=skew) if call.operation == "PutRecords" else None

    world.server.kinesis.faults = early
    count = sum(put_history(world.kinesis, world.clock, ["s"], rng, 60))
    world.clock.advance(20_000)
    batches = list(world.query(maxRecordsPerTrigger="500").drain())
    assert rows(batches) == count
    assert late(batches, timedelta(seconds=seconds)) == []


@BOTH_MODES
@pytest.mark.parametrize("shards", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_p6_a_limit_below_the_number_of_shards_holds(world: World, shards: int) -> None:
    world.kinesis.create_stream(StreamName="wide", ShardCount=shards)
    for n in range(shards):
        put_at(world.kinesis, "wide", b"%d" % n, HASH_KEYS // shards * n + 1)
        put_at(world.kinesis, "wide", b"%d" % n, HASH_KEYS // shards * n + 1)
    world.clock.advance(5000)
    batches = list(world.query(streamName="wide", maxRecordsPerTrigger=f"{shards // 2}").drain())
    assert [len(batch.rows) for batch in batches] == [shards // 2] * 4
    assert late(batches) == []


def test_p10_ten_reshards_in_a_backlog_cost_a_batch_each(world: World) -> None:
    world.kinesis.create_stream(StreamName="calm", ShardCount=1)
    counts = {}
    for stream, reshards in (("calm", 0), ("s", 10)):
        rng = random.Random(10)
        for step in range(110):
            put_many(world.kinesis, stream, 100, int(HASH_KEYS * rng.random()))
            world.clock.advance(1000)
            if reshards and step % 10 == 5 and step < 100:
                reshard(world.kinesis, stream, rng)
        world.clock.advance(2000)
        batches = list(world.query(streamName=stream, maxRecordsPerTrigger="2000").drain())
        assert rows(batches) == 11_000
        assert late(batches) == []
        counts[stream] = len(batches)
    print(counts)
    assert counts["s"] <= counts["calm"] + 10


def test_p10_a_burst_within_one_millisecond_is_divided(world: World) -> None:
    put_many(world.kinesis, "s", 3000, LIGHT)
    put_many(world.kinesis, "s", 3000, BUSY)
    world.clock.advance(5000)
    put_many(world.kinesis, "s", 10, LIGHT)
    world.clock.advance(5000)
    batches = list(world.query(maxRecordsPerTrigger="1000").drain())
    assert [len(batch.rows) for batch in batches] == [1000] * 6 + [10]
    assert late(batches) == []


def test_p10_a_record_that_arrives_while_a_silence_is_halved_waits(world: World) -> None:
    """The planner looks for the end of a burst, and lands on a record that has just arrived."""
    put_at(world.kinesis, "s", b"first", BUSY)
    for _ in range(30):
        put_many(world.kinesis, "s", 500, LIGHT, size=1000)
        world.clock.advance(100)
    world.clock.advance(600_000)
    ends: list[Call] = []

    def meanwhile(call: Call) -> None:
        if call.operation == "GetShardIterator" and call.shard == "shardId-000000000000":
            ends.append(call)
            if len(ends) == 3:  # after the start, and the instant after the batch's end
                world.clock.advance(3000)
                for data, key in ((b"before", BUSY), (b"after", LIGHT)):
                    world.server.kinesis.call(
                        "PutRecord",
                        StreamName="s",
                        Data=data,
                        PartitionKey="k",
                        ExplicitHashKey=str(key),
                    )
                    world.clock.advance(2000)

    world.server.kinesis.faults = meanwhile
    running = world.query()
    first = running.batch()
    assert len(ends) >= 3
    assert b"after" not in first.datas
    world.clock.advance(5000)
    batches = [first, *running.drain()]
    assert rows(batches) == 15_003
    assert late(batches) == []


def test_p10_a_shard_may_end_on_the_page_after_its_last_records(world: World) -> None:
    world.server.kinesis.empty_pages = 1
    put_at(world.kinesis, "s", b"parent", LIGHT)
    world.clock.advance(5000)
    split(world.kinesis, "s")
    world.clock.advance(5000)
    put_at(world.kinesis, "s", b"child", LIGHT)
    world.clock.advance(60_000)
    put_at(world.kinesis, "s", b"other", BUSY)
    world.clock.advance(5000)
    batches = list(world.query().drain())
    assert [{row["data"] for row in batch.rows} for batch in batches] == [
        {b"parent"},
        {b"child", b"other"},
    ]
    assert late(batches) == []


def test_p10_closed_shards_that_wait_lag_and_are_not_said_to_lack_an_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(60):
        put_many(world.kinesis, "s", 100, BUSY)
        world.clock.advance(1000)
    put_at(world.kinesis, "s", b"later", LIGHT)
    world.clock.advance(1000)
    split(world.kinesis, "s")
    world.clock.advance(7_200_000)
    time = Time()
    running = timed(world.query(maxRecordsPerTrigger="500"), time)
    for _ in range(6):
        assert running.next_batch() is not None
        time.now += 30.0
        report = running.reader.reportLatestOffset()
        assert report is not None
        lag = report["s"]["millisBehindLatest"]
        assert lag["mean"] > 7_000_000, "both shards are two hours behind"
    assert "end" not in caplog.text
