"""P6: a batch reads what it may, and about all of that, however long the backlog."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, ManualClock
from sparkinesis.local.model import limits
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import MODES, Query
from tests.properties.conftest import World
from tests.streams import put, put_all

BOTH_MODES = pytest.mark.parametrize("mode", MODES)

TEN_PERCENT = 0.1


def rows_per_batch(running: Query, every_other_polls: bool = False) -> Iterator[Counter[str]]:
    """Read batches until there is none; the rows of each shard are counted, not looked at."""
    while True:
        start, end = running.plan()
        if start == end:
            return
        rows: Counter[str] = Counter()
        for number, partition in enumerate(running.reader.partitions(start, end)):
            if every_other_polls and number % 2:
                partition.consumer_arn = None
            for batch in running.reader.read(partition):
                rows[batch.column("shardId")[0].as_py()] += batch.num_rows
        running.rows_read += sum(rows.values())
        running.checkpoint = end
        if rows:
            yield rows


def put_a_day(kinesis: Any, clock: ManualClock, stream: str, users: int, rng: random.Random) -> int:
    """About ``users`` user records over 24 hours, more by day than by night, part aggregated."""
    data = bytes(200)
    done = 0
    steps = min(24 * 60, users // 80)
    for step in range(steps):
        count = int(users / steps * (1 + 0.8 * math.sin(2 * math.pi * step / steps)))
        keys = [f"{rng.getrandbits(40):x}" for _ in range(count)]
        plain, packed = keys[: count // 2], keys[count // 2 :]
        entries = [{"Data": data, "PartitionKey": key} for key in plain]
        for at in range(0, len(packed), 20):
            blobs = aggregate((key, None, data) for key in packed[at : at + 20])
            entries += [{"Data": b.data, "PartitionKey": b.partition_key} for b in blobs]
        put_all(kinesis, stream, entries)
        done += count
        clock.advance(86_400_000 // steps - 1000)
    return done


@pytest.mark.parametrize("mode", ["efo"])
@pytest.mark.parametrize("count", [40_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_p6_a_days_records_come_in_batches_within_ten_percent_of_the_limit(
    world: World, count: int
) -> None:
    """Measured: 999,254 records in batches of 206,362 200,594 206,567 203,353 182,378."""
    world.kinesis.create_stream(StreamName="day", ShardCount=16)
    world.kinesis.increase_stream_retention_period(StreamName="day", RetentionPeriodHours=48)
    total = put_a_day(world.kinesis, world.clock, "day", count, random.Random(6))
    limit = count // 5
    running = world.query(streamName="day", maxRecordsPerTrigger=str(limit))
    batches = [sum(rows.values()) for rows in rows_per_batch(running, every_other_polls=True)]
    print(f"{total:,} records in batches of", *(f"{rows:,}" for rows in batches))
    assert sum(batches) == total
    assert max(batches) <= limit * (1 + TEN_PERCENT)
    assert min(batches[: total // limit]) >= limit * (1 - TEN_PERCENT)


def within(rows: int, limit: int) -> bool:
    return limit * (1 - TEN_PERCENT) <= rows <= limit * (1 + TEN_PERCENT)


@pytest.mark.parametrize(("apart_ms", "mode"), [(0, "efo"), (1000, "polling")])
def test_p6_bursts_are_counted(world: World, apart_ms: int) -> None:
    for _ in range(40):
        put_all(
            world.kinesis, "s", [{"Data": b"x" * 400, "PartitionKey": f"{n}"} for n in range(500)]
        )
        world.clock.advance(apart_ms)
    world.clock.advance(5000)
    batches = [sum(r.values()) for r in rows_per_batch(world.query(maxRecordsPerTrigger="6000"))]
    assert sum(batches) == 20_000
    assert all(within(rows, 6000) for rows in batches[:3])


@pytest.mark.parametrize("mode", ["efo"])
def test_p6_bytes_are_limited_too_and_the_tighter_limit_counts(world: World) -> None:
    for _ in range(10):
        put_all(
            world.kinesis, "s", [{"Data": bytes(2048), "PartitionKey": f"{n}"} for n in range(500)]
        )
        world.clock.advance(1000)
    running = world.query(maxBytesPerTrigger="2m", maxRecordsPerTrigger="1000000")
    batches = [sum(rows.values()) for rows in rows_per_batch(running)]
    assert sum(batches) == 5000
    assert all(within(rows, 1024) for rows in batches[:4])
    running = world.query(maxBytesPerTrigger="1g", maxRecordsPerTrigger="1500")
    batches = [sum(rows.values()) for rows in itertools.islice(rows_per_batch(running), 3)]
    assert all(within(rows, 1500) for rows in batches)


@BOTH_MODES
def test_p6_shards_that_may_be_apart_share_fairly_and_what_one_leaves_goes_to_the_others(
    world: World,
) -> None:
    world.kinesis.create_stream(StreamName="skewed", ShardCount=4)
    for n in range(20):
        put(world.kinesis, "skewed", [b"busy-%d" % n] * 500, "a")
        put(world.kinesis, "skewed", [b"also-%d" % n] * 500, "c")
        world.clock.advance(500)
    put(world.kinesis, "skewed", [b"few"] * 100, "e")
    world.clock.advance(5000)
    reading = world.query(
        streamName="skewed", maxRecordsPerTrigger="4000", maxShardDrift="unbounded"
    )
    first, second, *rest = rows_per_batch(reading)
    assert min(first.values()) == 100, "all of the shard that has little"
    assert within(sum(first.values()), 4000)
    assert within(sum(second.values()), 4000)
    for batch in (first, second):
        one, other = batch.most_common(2)
        assert one[1] == pytest.approx(other[1], rel=TEN_PERCENT)
    assert sum(sum(batch.values()) for batch in [first, second, *rest]) == 20_100


@BOTH_MODES
def test_p6_a_record_at_least_is_read_however_small_the_limit(world: World) -> None:
    put(world.kinesis, "s", [b"%d" % n for n in range(7)])
    world.clock.advance(5000)
    batches = list(rows_per_batch(world.query(maxBytesPerTrigger="1")))
    assert sum(sum(batch.values()) for batch in batches) == 7
    assert all(sum(batch.values()) <= 2 for batch in batches), "one of each shard"


@BOTH_MODES
def test_p6_several_streams_share_one_limit(world: World) -> None:
    world.kinesis.create_stream(StreamName="t", ShardCount=1)
    for n in range(12):
        put(world.kinesis, "s", [b"%d-%d" % (n, m) for m in range(500)])
        world.clock.advance(1000)
    put(world.kinesis, "t", [b"few-%d" % n for n in range(100)])
    world.clock.advance(5000)
    batches = list(rows_per_batch(world.query(streamName="s,t", maxRecordsPerTrigger="1500")))
    sizes = [sum(rows.values()) for rows in batches]
    assert sum(sizes) == 6100
    assert max(sizes) <= 1500 * (1 + TEN_PERCENT)
    assert all(within(rows, 1500) for rows in sizes[1:3]), "what t leaves goes to s"


@BOTH_MODES
def test_p6_a_batch_that_was_planned_ahead_and_is_not_full_is_planned_anew(world: World) -> None:
    world.kinesis.create_stream(StreamName="one", ShardCount=1)
    put(world.kinesis, "one", [b"%d" % n for n in range(1500)])
    world.clock.advance(5000)
    running = world.query(streamName="one", maxRecordsPerTrigger="1000")
    first = running.batch()
    assert len(first.rows) == 1000
    assert running.reader._planner is not None
    ahead = running.reader._planner._ahead
    assert ahead is not None
    assert ahead.wait() is not None
    put(world.kinesis, "one", [b"later-%d" % n for n in range(300)])
    world.clock.advance(5000)
    second = running.batch()
    assert len(second.rows) == 800


@BOTH_MODES
def test_p6_a_page_that_is_full_of_large_records_does_not_look_like_the_tip(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_GET_BYTES", 200_000)  # 10 MB, and records as much larger
    world.kinesis.create_stream(StreamName="large", ShardCount=1)
    for _ in range(300):
        put_all(world.kinesis, "large", [{"Data": bytes(4000), "PartitionKey": "k"}] * 10)
        world.clock.advance(100)
    world.clock.advance(5000)
    first = next(rows_per_batch(world.query(streamName="large", maxRecordsPerTrigger="1000")))
    assert within(sum(first.values()), 1000)


@BOTH_MODES
def test_p6_the_limit_holds_after_a_plan_made_ahead_has_failed_halfway(world: World) -> None:
    world.kinesis.create_stream(StreamName="one", ShardCount=1)
    for n in range(12):
        put(world.kinesis, "one", [b"%d-%d" % (n, m) for m in range(500)])
        world.clock.advance(2000)
    running = world.query(streamName="one", maxRecordsPerTrigger="2000")
    start = running.reader.initialOffset()
    pages = 0

    def refuses_the_second_page_of_the_second_plan(call: Call) -> Fault | None:
        nonlocal pages
        pages += call.operation == "GetRecords"
        return Fault.error("AccessDeniedException") if pages == 4 else None

    world.server.kinesis.faults = refuses_the_second_page_of_the_second_plan
    end = running.reader.latestOffset(start, running.reader.getDefaultReadLimit())
    assert running.reader._planner is not None
    ahead = running.reader._planner._ahead
    assert ahead is not None
    assert ahead.wait() is None
    world.server.kinesis.faults = None
    running.checkpoint = end
    second = running.batch()
    assert len(second.rows) == 2000
