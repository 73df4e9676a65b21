"""Servers that answer otherwise than the service, where its reference permits that or not.

The ends of shards name no children, and iterators and subscriptions begin too early.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.stream_planner import StreamPlanner
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.budget import Pace
from sparkinesis.stream.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from tests.engine import MODES, Query
from tests.streams import merge_neighbours, put, put_at, split

ODD = Fault(omit=frozenset({"ChildShards"}), begins_early=3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("begin", ["trim_horizon", "instant"])
def test_each_row_is_read_once(
    kinesis: Any,
    server: LocalServer,
    clock: ManualClock,
    query: Callable[..., Query],
    begin: str,
) -> None:
    rng = random.Random(1)
    put(kinesis, "s", [b"old %d" % n for n in range(20)])
    clock.advance(60_000)
    since = clock()
    server.kinesis.faults = lambda call: ODD
    expected = [b"new %02d" % n for n in range(60)]
    if begin == "instant":
        begin = datetime.fromtimestamp(since / 1000, timezone.utc).isoformat()
    else:
        expected = [*(b"old %d" % n for n in range(20)), *expected]
    running = query(initialPosition=begin)
    rows: list[bytes] = []
    for step in range(6):
        put(kinesis, "s", [b"new %02d" % n for n in range(10 * step, 10 * step + 10)])
        clock.advance(10_000)
        rows += [row["data"] for batch in running.drain() for row in batch.rows]
        (split, merge_neighbours)[step % 2](kinesis, "s", rng)
        # A listing is due: those of real time are five seconds apart.
        running.restart()
    rows += [row["data"] for batch in running.drain() for row in batch.rows]
    assert sorted(rows) == sorted(expected)


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_available_now_waits_until_children_are_listed(
    kinesis: Any, server: LocalServer, clock: ManualClock
) -> None:
    """What was there when the query started lies in shards of which nobody tells for a while."""
    first = put_at(kinesis, "s", b"1", 0)
    client = StreamClient(StreamAddress("s", None, "us-east-1", server.endpoint_url))
    before, _ = client.list_shards()
    kinesis.split_shard(StreamName="s", ShardToSplit=before[0].id, NewStartingHashKey=str(2**126))
    second = put_at(kinesis, "s", b"2", 0)
    clock.advance(5_000)
    server.kinesis.faults = lambda call: ODD
    time = Time()

    class Lagging(StreamClient):
        def list_shards(self, *given: Any, **named: Any) -> Any:
            shards, now_ms = super().list_shards(*given, **named)
            return (before if time.now < 20 else shards), now_ms

    planner = StreamPlanner(
        Lagging(client.address),
        pace=Pace(0, 0),
        period=0,
        fail_on_data_loss=True,
        clock=time,
        sleep=time.sleep,
    )
    planner.stop_at_present()
    at: Positions = {ANY_SHARD: TRIM_HORIZON}
    ends: list[str] = []
    while (following := planner.next_offset(at)) is not at:
        at = following
        ends += [one.sequence_number for one in at.values() if isinstance(one, AfterRecord)]
    assert ends == [first, second]
    assert 20 <= time.now < 60
