"""P9: ``skipOlderThan``: a query that starts or resumes too far behind goes on at the bound."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.local import ManualClock
from tests.engine import MODES, Query
from tests.properties.conftest import World
from tests.streams import merge_neighbours, put, split

pytestmark = pytest.mark.parametrize("mode", MODES)

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class History:
    """What was put, and when: the data of a record is its number."""

    def __init__(self, kinesis: Any, clock: ManualClock) -> None:
        self._kinesis = kinesis
        self._clock = clock
        self.arrived: list[int] = []

    def put(self, count: int = 1) -> None:
        first = len(self.arrived)
        put(self._kinesis, "s", [b"%d" % n for n in range(first, first + count)])
        self.arrived += [self._clock()] * count

    def since(self, ms: int, first: int = 0) -> list[int]:
        return [n for n, at in enumerate(self.arrived) if at >= ms and n >= first]


def numbers(running: Query) -> list[int]:
    return sorted(int(row["data"]) for batch in running.drain() for row in batch.rows)


@pytest.fixture
def history(kinesis: Any, clock: ManualClock) -> History:
    return History(kinesis, clock)


def test_p9_always_from_latest_through_reshards_while_stopped_and_while_running(
    world: World, history: History
) -> None:
    running = world.query(initialPosition="latest", skipOlderThan="0")
    assert numbers(running) == []
    world.clock.advance(SECOND)
    history.put(50)
    assert numbers(running) == list(range(50))
    # Stopped for two hours, resharded twice meanwhile: children hold two hours of records.
    for _ in range(4):
        world.clock.advance(30 * MINUTE)
        history.put(50)
        split(world.kinesis, "s")
    history.put(50)
    world.clock.advance(SECOND)
    started = world.clock()
    running.restart()
    assert numbers(running) == []
    world.clock.advance(2 * SECOND)
    # While it runs, resharding loses nothing.
    for _ in range(3):
        history.put(20)
        merge_neighbours(world.kinesis, "s")
        split(world.kinesis, "s")
        world.clock.advance(SECOND)
    history.put(20)
    assert numbers(running) == history.since(started)


def test_p9_an_old_checkpoint_goes_on_at_the_bound(world: World, history: History) -> None:
    running = world.query(skipOlderThan="2 minutes")
    history.put(30)
    assert numbers(running) == list(range(30))
    for _ in range(90):
        history.put(2)
        world.clock.advance(MINUTE)
    running.restart()
    assert numbers(running) == history.since(world.clock() - 2 * MINUTE)
    running.restart()
    assert numbers(running) == [], "once is enough"


@pytest.mark.parametrize("away", [SECOND, 2 * MINUTE], ids=["at once", "later"])
def test_p9_a_stream_created_anew_begins_at_the_bound_in_all_shards(
    world: World, history: History, away: int
) -> None:
    """The new stream has more shards; from one made at once, no time tells the old one apart."""
    running = world.query(skipOlderThan="1 hour")
    history.put(30)
    assert numbers(running) == list(range(30))
    world.kinesis.delete_stream(StreamName="s", EnforceConsumerDeletion=True)
    world.clock.advance(away)
    world.kinesis.create_stream(StreamName="s", ShardCount=4)
    history.put(30)
    world.clock.advance(5 * HOUR)
    history.put(30)
    world.clock.advance(MINUTE)
    running.restart()
    assert numbers(running) == list(range(60, 90))


def test_p9_what_retention_removed_is_not_missed(world: World, history: History) -> None:
    running = world.query(skipOlderThan="1h")
    history.put(30)
    assert numbers(running) == list(range(30))
    history.put(30)
    world.clock.advance(HOUR)
    split(world.kinesis, "s")
    world.clock.advance(60 * HOUR)
    history.put(10)
    first = len(history.arrived) - 10
    running.restart()
    assert numbers(running) == history.since(0, first)


def test_p9_the_jump_is_in_the_checkpoint_before_anything_is_read(
    world: World, history: History
) -> None:
    history.put(5)
    world.clock.advance(HOUR)
    history.put(5)
    running = world.query(skipOlderThan="2 minutes")
    start, end = running.plan()
    assert start != end
    assert running.read(start, end).rows == []
    running.checkpoint = end
    planned = running.plan()
    world.clock.advance(HOUR)
    running.restart()
    # Spark reads a batch that it had planned before the crash, skipped or not.
    assert sorted(int(row["data"]) for row in running.read(*planned).rows) == list(range(5, 10))


def test_p9_nothing_is_skipped_where_arrival_times_are_out_of_order(world: World) -> None:
    """A shard's records from the bound on begin with one that was read: it would come again."""
    start = world.clock()
    world.kinesis.create_stream(StreamName="one", ShardCount=1)

    def put_at_minute(minute: int, data: bytes) -> None:
        world.clock._now = start + minute * MINUTE
        put(world.kinesis, "one", [data])

    for minute, data in ((5, b"0"), (0, b"1"), (0, b"2"), (1, b"3")):
        put_at_minute(minute, data)
    world.clock.advance(4 * MINUTE + SECOND)
    options = {"skipOlderThan": "2 minutes", "maxRecordsPerTrigger": "2"}
    running = world.query(streamName="one", **options)
    batches = running.drain()
    assert next(batches).rows == [], "it jumps to the bound"
    assert next(batches).datas == [b"0", b"1"]
    running.restart()
    assert numbers(running) == [2, 3]


def test_p9_children_of_a_shard_that_closed_behind_its_last_row_begin_at_the_bound(
    world: World, history: History
) -> None:
    running = world.query(skipOlderThan="2 minutes")
    history.put(30)
    assert numbers(running) == list(range(30))
    split(world.kinesis, "s", index=0)
    split(world.kinesis, "s", index=2)
    history.put(50)
    world.clock.advance(HOUR)
    history.put(20)
    running.restart()
    assert numbers(running) == list(range(80, 100))
