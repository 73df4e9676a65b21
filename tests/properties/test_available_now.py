"""``Trigger.AvailableNow`` reads what was there when the query started, and ends."""

from __future__ import annotations

from itertools import islice

from tests.properties.conftest import World, numbered
from tests.streams import merge_neighbours, put, split


def test_what_comes_while_it_reads_is_left_to_the_next_query(world: World) -> None:
    put(world.kinesis, "s", numbered(0, 30))
    split(world.kinesis, "s")
    put(world.kinesis, "s", numbered(30, 30))
    merge_neighbours(world.kinesis, "s")
    put(world.kinesis, "s", numbered(60, 30))
    world.clock.advance(10_000)
    running = world.query()
    running.reader.prepareForTriggerAvailableNow()
    world.clock.advance(5_000)
    written = 90

    def keep_writing() -> None:
        nonlocal written
        put(world.kinesis, "s", numbered(written, 20))
        written += 20
        world.clock.advance(1_000)
        if written == 130:
            split(world.kinesis, "s")

    keep_writing()
    batches = list(islice(running.drain(keep_writing), 10))
    assert len(batches) < 10, "it ends, though records keep coming"
    assert sorted(data for batch in batches for data in batch.datas) == numbered(0, 90)
    running.restart()
    assert sorted(running.rest()) == numbered(90, written - 90)
