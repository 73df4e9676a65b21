"""Several streams in one query: one offset, and rows of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.engine import Query
from tests.streams import put


def test_several_streams_are_read_by_one_query_and_one_may_be_added_later(
    kinesis: Any, query: Callable[..., Query]
) -> None:
    kinesis.create_stream(StreamName="t", ShardCount=1)
    put(kinesis, "s", [b"a", b"b"])
    put(kinesis, "t", [b"c"])
    running = query()
    assert sorted(row["data"] for batch in running.drain() for row in batch.rows) == [b"a", b"b"]
    put(kinesis, "s", [b"d"])
    running.restart(streamName="s,t")
    rows = [row for batch in running.drain() for row in batch.rows]
    assert sorted((row["stream"], row["data"]) for row in rows) == [("s", b"d"), ("t", b"c")]
    put(kinesis, "t", [b"e"])
    (batch,) = running.drain()
    assert [row["data"] for row in batch.rows] == [b"e"]
