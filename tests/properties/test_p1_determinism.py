"""P1: the same (start, end) yields the same rows in the same order, whenever and wherever."""

from __future__ import annotations

import random

import pytest

from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import MODES
from tests.properties.conftest import World, numbered
from tests.streams import merge_neighbours, put, split

pytestmark = pytest.mark.parametrize("mode", MODES)


def test_p1_every_batch_of_a_history_reads_again_as_it_was(world: World) -> None:
    rng = random.Random(1)
    running = world.query()
    batches = []
    for step in range(12):
        put(world.kinesis, "s", numbered(step * 1000, rng.randrange(1, 400)))
        for blob in aggregate([("k", None, data) for data in numbered(step * 1000 + 500, 30)]):
            world.kinesis.put_record(
                StreamName="s", Data=blob.data, PartitionKey=blob.partition_key
            )
        world.clock.advance(rng.randrange(1, 5000))
        if step % 4 == 1:
            split(world.kinesis, "s", rng)
        if step % 4 == 3:
            merge_neighbours(world.kinesis, "s", rng)
        if batch := running.next_batch():
            batches.append(batch)
    batches += running.drain()
    put(world.kinesis, "s", numbered(900_000, 500))
    world.clock.advance(20 * 3_600_000)
    for batch in rng.sample(batches, len(batches)):
        again = world.query(rng.choice(list(MODES))).read(batch.start, batch.end)
        assert again.rows == batch.rows
    assert len(batches) >= 8


@pytest.mark.parametrize("limit", ["1", "7", "10000"])
def test_p1_the_size_of_the_pages_does_not_matter(world: World, limit: str) -> None:
    put(world.kinesis, "s", numbered(0, 60))
    running = world.query()
    start, end = running.plan()
    put(world.kinesis, "s", numbered(100, 60))
    expected = running.read(start, end)
    assert len(expected.rows) == 60
    calls = world.server.kinesis.calls
    calls.clear()
    assert world.query(maxRecordsPerFetch=limit).read(start, end).rows == expected.rows
    assert all(call.records <= int(limit) for call in calls.select("GetRecords"))


def test_p1_a_crash_in_the_first_batch_replays_it_from_the_same_place(world: World) -> None:
    """Spark does not store the initial offset: it asks for it again after such a crash."""
    put(world.kinesis, "s", numbered(0, 20))
    for position in ("trim_horizon", "latest", "2026-09-01T00:00:00Z"):
        first, second = world.query(initialPosition=position), world.query(initialPosition=position)
        start, end = first.plan()
        world.clock.advance(5_000)
        assert second.reader.initialOffset() == start
        assert second.read(start, end).rows == first.read(start, end).rows
