"""What a planner keeps from plan to plan changes no plan: only calls and CPU."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD, KnownOffsets, Positions, to_json
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.options.read_options import stream_read_options
from sparkinesis.source.planning.aligned_batch import plan_batch
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.timing import Timing
from tests.streams import active_shards, merge_neighbours, put_at, split

BEGIN: Positions = {ANY_SHARD: TRIM_HORIZON}


class WholePlanner(StreamPlanner):
    """Considers each shard in each plan, and remembers nothing of the offset before."""

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> Positions | None:
        self._checked = self._walked = self._fresh = None
        return super().begin(start, allowance)

    def _sort_out(self, shards: Iterable[str]) -> None:
        self._active.update({shard_id: self._looked[shard_id] for shard_id in shards})

    def _has_nothing_to_store(self, ends: Any) -> bool:
        return False


def planner(kind: type[StreamPlanner], server: LocalServer, clock: ManualClock) -> StreamPlanner:
    def sleep(seconds: float) -> None:
        pytest.fail(f"a planner without limits slept {seconds} seconds")

    client = StreamClient(
        StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url), wall_clock_ms=clock
    )
    options = {
        "streamName": "s",
        "minFetchPeriod": "0s",
        "shardCallsPerSecond": "unlimited",
        "shardBytesPerSecond": "unlimited",
    }
    timing = Timing(clock=lambda: clock() / 1000, sleep=sleep)
    return kind(client, stream_read_options(Options(options)), timing=timing)


def happen(kinesis: Any, clock: ManualClock, rng: random.Random, *, reshards: bool) -> None:
    busy = rng.choice([2**128, 2**125])
    for _ in range(rng.choice([0, 0, 0, 1, 3, 40])):
        put_at(kinesis, "s", b"x", rng.randrange(busy))
        clock.advance(rng.choice([0, 1, 300]))
    if reshards and rng.random() < 0.2:
        split(kinesis, "s", rng)
    if reshards and rng.random() < 0.2 and len(active_shards(kinesis, "s")) > 1:
        merge_neighbours(kinesis, "s", rng)
    # Seconds, minutes within and beyond the life of an iterator, and a time after which an offset
    # is stored without rows.
    clock.advance(rng.choice([10, 1_000, 6_000, 6_000, 200_000, 400_000, 7 * 3_600_000]))


def again(offset: Positions, rng: random.Random) -> Positions:
    """The offset as Spark returns it: the same object, or an equal one that was text."""
    if rng.random() < 0.5:
        return offset
    return KnownOffsets(["s"]).read(to_json({"s": offset}))["s"]


@pytest.mark.parametrize("rows", [None, 15.0])
@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 30))]
)
def test_quiet_shards_that_are_left_out_change_no_plan(
    kinesis: Any, server: LocalServer, clock: ManualClock, seed: int, rows: float | None
) -> None:
    rng = random.Random(seed)
    allowance = NO_LIMIT if rows is None else Allowance(rows=rows)
    kept, whole = planner(StreamPlanner, server, clock), planner(WholePlanner, server, clock)
    for _ in range(4):
        split(kinesis, "s", rng)
    start = BEGIN
    quiet = idle = 0
    for _ in range(30):
        happen(kinesis, clock, rng, reshards=True)
        begun = again(start, rng)
        ours = plan_batch({"": kept}, {"": begun}, allowance)
        theirs = plan_batch({"": whole}, {"": begun}, allowance)
        assert ours.end == theirs.end
        assert ours.taken == pytest.approx(theirs.taken)
        assert kept.expected == whole.expected
        assert (ours.end[""] is begun) == (theirs.end[""] is begun)
        assert {s: kept.lags_ms[s] for s in ours.end[""] if s in kept.lags_ms} == {
            s: whole.lags_ms[s] for s in ours.end[""] if s in whole.lags_ms
        }
        quiet += kept.quiet_shards
        idle += ours.end[""] is begun
        if rng.random() < 0.8:  # else the batch fails, and is planned again
            start = ours.end[""]
    assert not whole.quiet_shards
    assert quiet > 20
    assert idle


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 20))]
)
def test_a_plan_by_what_was_kept_is_the_plan_of_a_new_planner(
    kinesis: Any, server: LocalServer, clock: ManualClock, seed: int
) -> None:
    rng = random.Random(seed)
    kept = planner(StreamPlanner, server, clock)
    start, batches = BEGIN, 0
    for _ in range(25):
        happen(kinesis, clock, rng, reshards=False)
        begun = again(start, rng)
        ours = plan_batch({"": kept}, {"": begun}).end[""]
        theirs = plan_batch({"": planner(StreamPlanner, server, clock)}, {"": begun}).end[""]
        assert ours == theirs
        batches += any(isinstance(at, AfterRecord) for at in ours.values()) and ours is not begun
        if rng.random() < 0.8:
            start = ours
    assert batches > 3


def test_quiet_shards_bound_the_batch_and_cost_one_call_each(
    kinesis: Any, server: LocalServer, clock: ManualClock
) -> None:
    kept = planner(StreamPlanner, server, clock)
    # Shards that never had a record are at an instant, which moves with each stored offset.
    start = plan_batch({"": kept}, {"": BEGIN}).end[""]
    for _ in range(3):
        clock.advance(5_000)
        put_at(kinesis, "s", b"x", 0)
        start = plan_batch({"": kept}, {"": start}).end[""]
        clock.advance(5_000)
        server.kinesis.calls.clear()
        assert kept.begin(start) is None
        assert kept.quiet_shards == 2
        assert kept.bound_ms == clock()
        calls = [(call.operation, call.shard) for call in server.kinesis.calls]
        assert sorted(calls) == [("GetRecords", shard) for shard in sorted(start)]
