"""P5: no batch runs when no record arrived, and an idle stream costs few calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.timing import Timing
from tests.engine import MODES
from tests.planners import next_end, stream_planner
from tests.properties.conftest import World
from tests.streams import put, shard_ids, split


def virtual_planner(
    server: LocalServer, clock: ManualClock, stream: str, period: str = "1s"
) -> StreamPlanner:
    def sleep(seconds: float) -> None:
        clock.advance(max(1, round(seconds * 1000)))

    return stream_planner(
        StreamClient(StreamAddress(stream, region="us-east-1", endpoint=server.endpoint_url)),
        timing=Timing(clock=lambda: clock() / 1000, sleep=sleep),
        minFetchPeriod=period,
        shardCallsPerSecond="5",
        shardBytesPerSecond="2000000",
    )


@pytest.mark.parametrize(("period", "most"), [("1s", 60), ("2s", 30)])
def test_p5_an_idle_stream_of_8_shards_costs_60_calls_per_shard_and_minute(
    kinesis: Any, server: LocalServer, clock: ManualClock, period: str, most: int
) -> None:
    kinesis.create_stream(StreamName="idle", ShardCount=8)
    planner = virtual_planner(server, clock, "idle", period)
    initial: Positions = {ANY_SHARD: TRIM_HORIZON}
    start = next_end(planner, initial)  # Spark makes a batch of the first offset anyway
    shards = shard_ids(kinesis, "idle")
    assert set(start) == set(shards)
    assert next_end(planner, start) is start
    server.kinesis.calls.clear()
    begin = clock()
    while clock() < begin + 60_000:
        assert next_end(planner, start) is start
    calls = Counter((call.operation, call.shard) for call in server.kinesis.calls)
    assert set(calls) == {("GetRecords", shard) for shard in shards}, "nothing but GetRecords"
    assert all(most - 5 <= count <= most + 1 for count in calls.values()), calls


@pytest.mark.parametrize("mode", MODES)
def test_p5_a_reshard_without_records_runs_no_batch_and_loses_none(world: World) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a"], "k")
    assert len(list(running.drain())) == 1
    for _ in range(3):
        split(world.kinesis, "s")
        world.clock.advance(2_000)
        assert running.next_batch() is None
    put(world.kinesis, "s", [b"%d" % n for n in range(100)])
    delivered = running.rest()
    assert sorted(delivered) == sorted(b"%d" % n for n in range(100))
    running.restart()
    assert running.next_batch() is None
