"""``Trigger.AvailableNow`` reads what was there when the query started, all of it, and ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.timing import Timing
from tests.planners import next_end, stream_planner
from tests.properties.conftest import World
from tests.streams import merge_neighbours, put, split


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % n for n in range(first, first + count)]


def test_available_now_ends_at_what_was_there_through_splits_and_merges(world: World) -> None:
    rng = random.Random(3)
    there = 0
    for step in range(20):
        count = rng.choice([0, 1, 50, 2000])
        put(world.kinesis, "s", numbered(there, count))
        there += count
        world.clock.advance(rng.randrange(1, 30_000))
        if step % 3 == 0:
            split(world.kinesis, "s", rng)
        elif step % 3 == 1:
            merge_neighbours(world.kinesis, "s", rng)
    world.clock.advance(10_000)
    world.server.kinesis.empty_pages = 7
    running = world.query()
    running.reader.prepareForTriggerAvailableNow()
    world.clock.advance(5_000)
    later = there

    def keep_writing() -> None:
        nonlocal later
        put(world.kinesis, "s", numbered(later, 20))
        later += 20
        world.clock.advance(1_000)
        if later % 60 == 0:
            split(world.kinesis, "s", rng)

    keep_writing()
    rows = [row["data"] for batch in running.drain(keep_writing) for row in batch.rows]
    assert sorted(rows) == numbered(0, there)
    world.server.kinesis.empty_pages = 0
    running.restart()
    rows = running.rest()
    assert sorted(rows) == numbered(there, later - there)


def test_records_that_are_left_to_the_next_query_are_no_shard_that_does_not_end(
    kinesis: Any, server: LocalServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    planner = stream_planner(
        StreamClient(StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url)),
        timing=Timing(clock=lambda: clock() / 1000, sleep=lambda _: None),
    )
    planner.stop_at(clock())
    clock.advance(1_000)
    put(kinesis, "s", [b"later %d" % n for n in range(20)])
    split(kinesis, "s")
    clock.advance(1_000)
    at = next_end(planner, {ANY_SHARD: TRIM_HORIZON})
    for _ in range(5):
        clock.advance(30_000)
        at = next_end(planner, at)
    assert "does not end" not in caplog.text
