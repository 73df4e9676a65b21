"""What a planner keeps from plan to plan changes no plan: only calls and CPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD, KnownOffsets, Positions, to_json
from sparkinesis.source.options.checked_options import NO_LIMIT, Allowance
from sparkinesis.source.planning.aligned_batch import plan_batch
from sparkinesis.source.planning.stream_plan import StreamPlan
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.timing import Timing
from tests.failing import Failing
from tests.planners import planner_options
from tests.streams import active_shards, merge_neighbours, put_at, split

BEGIN: Positions = {ANY_SHARD: TRIM_HORIZON}


class NotedPlanner(StreamPlanner):
    """Notes its last plan."""

    plan: StreamPlan

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> StreamPlan | Positions:
        begun = super().begin(start, allowance)
        assert isinstance(begun, StreamPlan)
        self.plan = begun
        return begun


class ForgetfulPlanner(NotedPlanner):
    """Keeps nothing between plans."""

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> StreamPlan | Positions:
        self.forget()
        return super().begin(start, allowance)


class WholePlanner(NotedPlanner):
    """Considers each shard to the end of each plan."""

    def begin(self, start: Positions, allowance: Allowance = NO_LIMIT) -> StreamPlan | Positions:
        begun = super().begin(start, allowance)
        self.plan.active.update(self.plan.quiet)
        self.plan.quiet.clear()
        return begun

    def _has_nothing_to_store(self, *_: Any) -> bool:
        return False


def rows_up_to(end: Positions) -> Positions:
    """An offset without what it tells of the past."""
    return {
        shard: replace(at, clear_until=None) if isinstance(at, AfterRecord) else at
        for shard, at in end.items()
    }


def is_told_late(ours: Positions, theirs: Positions, ms: int) -> bool:
    """Return True if an offset tells of the past up to ``ms`` less than the other, and no more."""
    told = [(at, theirs[shard]) for shard, at in ours.items() if isinstance(at, AfterRecord)]
    return all(
        isinstance(other, AfterRecord)
        and 0 <= (other.clear_until or 0) - (at.clear_until or 0) <= ms
        for at, other in told
    )


MakePlanner: TypeAlias = Callable[[type[NotedPlanner]], NotedPlanner]


@pytest.fixture
def planner(server: LocalServer, clock: ManualClock) -> MakePlanner:
    def sleep(seconds: float) -> None:
        pytest.fail(f"a planner without limits slept {seconds} seconds")

    client = StreamClient(
        StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url), wall_clock_ms=clock
    )
    timing = Timing(clock=lambda: clock() / 1000, sleep=sleep)
    return lambda kind: kind(StreamTools(client, planner_options("s"), timing=timing))


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


@pytest.mark.parametrize(
    "how",
    list(itertools.product([WholePlanner, ForgetfulPlanner], [NO_LIMIT, Allowance(rows=15)])),
)
@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 30))]
)
def test_no_plan_depends_on_quiet_shards_or_on_what_is_kept(
    kinesis: Any,
    planner: MakePlanner,
    clock: ManualClock,
    seed: int,
    how: tuple[type[NotedPlanner], Allowance],
) -> None:
    rng = random.Random(seed)
    kind, allowance = how
    kept, other = planner(NotedPlanner), planner(kind)
    for _ in range(4):
        split(kinesis, "s", rng)
    start = BEGIN
    quiet = idle = batches = 0
    planned_ms = clock()
    for _ in range(30):
        happen(kinesis, clock, rng, reshards=True)
        begun = again(start, rng)
        ours = plan_batch({"": kept}, {"": begun}, allowance)
        theirs = plan_batch({"": other}, {"": begun}, allowance)
        assert rows_up_to(ours.end[""]) == rows_up_to(theirs.end[""])
        if kind is WholePlanner or not allowance.is_limited:
            # Of a shard that was at its tip at the plan before, the page of that plan may be left.
            since = 0 if kind is WholePlanner else clock() - planned_ms
            assert is_told_late(ours.end[""], theirs.end[""], since)
            assert kept.outcome.lags_ms == other.outcome.lags_ms
        planned_ms = clock()
        assert ours.taken == pytest.approx(theirs.taken)
        assert kept.outcome.expected == other.outcome.expected
        assert (ours.end[""] is begun) == (theirs.end[""] is begun)
        quiet += len(kept.plan.quiet)
        idle += ours.end[""] is begun
        batches += bool(kept.outcome.expected)
        if rng.random() < 0.8:  # else the batch fails, and is planned again
            start = ours.end[""]
    assert quiet > 20
    assert idle
    assert batches > 3


@pytest.mark.parametrize("pause", [(5.0, 0), (5.1, 1)])
def test_the_first_plan_after_a_pause_lists_the_shards_if_it_can(
    server: LocalServer,
    kinesis: Any,
    planner: MakePlanner,
    clock: ManualClock,
    pause: tuple[float, int],
) -> None:
    """It does without where the call is refused. ``pause``: seconds, and the calls after them."""
    seconds, calls = pause
    kept = planner(NotedPlanner)
    put_at(kinesis, "s", b"x")
    clock.advance(1000)
    first = plan_batch({"": kept}, {"": BEGIN})
    put_at(kinesis, "s", b"y")
    clock.advance(round(seconds * 1000))
    server.kinesis.faults = refused = Failing(
        "ListShards", then=Fault.error("AccessDeniedException")
    )
    second = plan_batch({"": kept}, {"": first.end[""]})
    assert refused.met == calls
    assert sum(filter(None, kept.outcome.expected.values())) == 1
    assert second.end != first.end
