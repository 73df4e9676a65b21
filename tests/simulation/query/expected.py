"""The rows that the sink must hold in the end, those that it must not, and those that are lost.

Instants are epoch milliseconds. Calls take time, so that the source may decide by an earlier or a
later instant: rows between the two may be there or not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.query.checkpoint import Row, RowId
from tests.simulation.query.history import STREAMS, Lag, Put
from tests.simulation.query.lives import HOUR_MS, Life

if TYPE_CHECKING:
    from tests.simulation.query.engine import Plan
    from tests.simulation.query.world import World

_SECOND = 1000
"""The service tells its time in whole seconds."""

_UNRECOGNISED_MS = 120_000
"""A stream that was created less than this after a stored instant may be taken for an older one."""


@dataclass(frozen=True, slots=True)
class Loss:
    """An error or a warning that told, at ``at`` (virtual seconds), that records are gone."""

    at: float
    text: str

    @property
    def stream(self) -> str:
        found = re.search(r"stream '([a-z]+)'", self.text)
        assert found is not None, f"names no stream: {self.text}"
        return found[1]

    @property
    def shards(self) -> frozenset[str]:
        return frozenset(re.findall(r"shardId-\d{12}", self.text))

    def is_all_that_could_be_told(self, at_ms: int) -> bool:
        """False for a doubt about a position whose own record, which is gone, proves the loss.

        ``at_ms``: when it was told.
        """
        if "nothing shows whether" not in self.text:
            return True
        arrived, hours = re.search(r"~(\d+)", self.text), re.search(r"for (\d+) hours", self.text)
        assert hours is not None
        return arrived is None or int(arrived[1]) < at_ms - int(hours[1]) * HOUR_MS


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a stream: rows are wanted from ``surely_ms`` on, and none from before
    ``maybe_ms``."""

    maybe_ms: float
    surely_ms: float
    plan: Plan
    closed: frozenset[str] = frozenset()
    """Shards that LATEST leaves out: what was put there was put before, whatever its arrival time
    says. Without skew it is from before ``surely_ms``, too."""


def put_rows(world: World) -> list[Row]:
    """All that was put, as the query gives it."""
    streams = world.streams
    is_packed = world.options.get("deaggregate") == "false"
    return streams.records if is_packed else streams.user_records


def delivered(world: World) -> set[RowId]:
    return {row.id for tasks in world.sink.batches.values() for task in tasks for row in task}


def missing(world: World) -> list[Row]:
    """The rows that are missing in the sink."""
    there = delivered(world)
    names = world.options["streamName"].split(",")
    begun = {name: beginning(world, name) for name in names}
    found = []
    for row in put_rows(world):
        if row.id in there or row.id.stream not in begun:
            continue
        began = begun[row.id.stream]
        if began is None or (is_surely_wanted(began, row) and not excused(world, began, row)):
            found.append(row)
    return found


def is_surely_wanted(began: Beginning, row: Row) -> bool:
    return row.arrival_ms >= began.surely_ms and row.id.shard not in began.closed


def beginning(world: World, stream: str) -> Beginning | None:
    """The beginning of a stream's reading; None until an offset shows it."""
    for batch in sorted(world.checkpoint.offsets):
        positions = json.loads(world.checkpoint.offsets[batch]).get(stream)
        plan = next((plan for plan in world.plans if plan.batch == batch), None)
        if positions is None or plan is None or plan.ended is None:
            continue
        initial = json.loads(plan.start).get(stream, {}).get("*")
        if initial is None or positions.get("*") == initial == "LATEST":
            continue  # only just added to the query
        began, ended = (world.epoch_ms(at) for at in (plan.began, plan.ended))
        if initial == "LATEST":
            times = world.streams.closed_ms.items()
            closed = frozenset(shard for (of, shard), at in times if of == stream and at <= ended)
            return Beginning(began - _SECOND, ended, plan, closed)
        instant = float(initial.partition(":")[2] or "-inf")
        return Beginning(instant, instant, plan)
    return None


def excused(world: World, began: Beginning, row: Row) -> bool:
    """True if a row may be missing: skipped, expired before the first plan, or reported lost."""
    if any(row.arrival_ms < bound for _, bound in skips(world, row.id.stream)):
        return True
    gone_ms = world.streams.life_of(row.id).gone_ms(row)
    if any(is_announced(world, loss, row) for loss in world.losses):
        return True
    if any(was_replaced_at_once(world, life) for life in world.streams.lives[row.id.stream]):
        return True
    # What the first plan saw is owed, or its loss is told.
    assert began.plan.ended is not None
    return gone_ms <= world.epoch_ms(began.plan.ended)


def was_replaced_at_once(world: World, life: Life) -> bool:
    """True if a stream was deleted so soon after a plan that nobody can tell its successor from it.

    The stored instants are as old as clocks may differ from each other.
    """
    plans = (world.epoch_ms(plan.ended) for plan in world.plans if plan.ended is not None)
    seen = max((ended for ended in plans if ended <= life.deleted_ms), default=-math.inf)
    return life.deleted_ms <= seen + _UNRECOGNISED_MS


def is_announced(world: World, loss: Loss, row: Row) -> bool:
    """True if a reported loss covers a row: expired by then, and in the named shards or below.

    It also covers the rows of a deleted stream that it names as a whole, or that came and went
    between two plans, so that the query stood in none of its shards; and those of its successor.
    """
    life = world.streams.life_of(row.id)
    at_ms = world.epoch_ms(loss.at)
    if loss.stream != row.id.stream or not loss.is_all_that_could_be_told(at_ms):
        return False
    names_all = "a deleted stream of the same name" in loss.text
    if life.deleted_ms <= at_ms:
        plans = (world.epoch_ms(plan.ended) for plan in world.plans if plan.ended is not None)
        was_seen = any(life.created_ms <= ended <= life.deleted_ms for ended in plans)
        if not was_seen or names_all:
            return True
    is_gone = life.gone_ms(row) <= at_ms + _SECOND
    return is_gone and (names_all or row.id.shard in life.with_descendants(loss.shards))


def skips(world: World, stream: str) -> Iterator[tuple[Plan, float]]:
    """The plans that may have skipped what is older than a bound."""
    for run in world.runs:
        age = run.asked.skip_older_than
        if age is None:
            continue
        # Of a stream that was only just added, it is the second one that plans it.
        for plan in [plan for plan in run.plans if plan.ended is not None][:2]:
            assert plan.ended is not None
            yield plan, world.epoch_ms(plan.ended) - age * 1000


def has_skew(world: World) -> bool:
    """True if arrival times are out of order somewhere."""
    return any(isinstance(event, Put) and event.skew for _, event in world.history.events)


def has_lag(world: World) -> bool:
    return any(isinstance(event, Lag) for _, event in world.history.events)


def unwanted(world: World) -> Iterator[str]:
    """The rows in the sink that lie before the place where the query began or resumed."""
    if has_skew(world) or has_lag(world):
        return
    for stream in STREAMS:
        began = beginning(world, stream)
        first = {run: bound_before(world, plan) for run, plan in _first_plans(world)}
        for batch, tasks in world.sink.batches.items():
            planned = next((plan for plan in world.plans if plan.batch == batch), None)
            bound = first.get(planned.run, float("-inf")) if planned else float("-inf")
            for row in (row for task in tasks for row in task if row.id.stream == stream):
                if began is not None and row.arrival_ms < began.maybe_ms:
                    yield f"{row.data!r} arrived at {row.arrival_ms}, before {began.maybe_ms}"
                if row.arrival_ms < bound:
                    yield f"{row.data!r} in batch {batch} was to be skipped: older than {bound}"


def _first_plans(world: World) -> Iterator[tuple[object, Plan]]:
    for run in world.runs:
        if run.plans and run.asked.skip_older_than is not None:
            yield run, run.plans[0]


def bound_before(world: World, plan: Plan) -> float:
    """No bound that a plan finds is earlier."""
    age = plan.run.asked.skip_older_than
    assert age is not None
    return world.epoch_ms(plan.began) - age * 1000 - _SECOND
