"""Several streams in one query: one offset, and rows of each."""

from __future__ import annotations

from tests.properties.conftest import World
from tests.streams import put


def test_several_streams_are_read_by_one_query_and_one_may_be_added_later(world: World) -> None:
    world.kinesis.create_stream(StreamName="t", ShardCount=1)
    put(world.kinesis, "s", [b"a", b"b"])
    put(world.kinesis, "t", [b"c"])
    running = world.query()
    assert sorted(running.rest()) == [b"a", b"b"]
    put(world.kinesis, "s", [b"d"])
    running.restart(streamName="s,t")
    rows = [row for batch in running.drain() for row in batch.rows]
    assert sorted((row["stream"], row["data"]) for row in rows) == [("s", b"d"), ("t", b"c")]
    put(world.kinesis, "t", [b"e"])
    (batch,) = running.drain()
    assert batch.datas == [b"e"]
