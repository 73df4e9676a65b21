"""Histories of programs that pause and resume their shards, and what must be true meanwhile."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from tests.simulation import history as h
from tests.simulation.fleet import Held
from tests.simulation.histories import in_order
from tests.simulation.rough import rough_history
from tests.simulation.subscribing import rough_subscribing
from tests.simulation.world import World

_SLACK = 1.0
"""Seconds after the call within which what had begun before may still be seen."""


def rough_holding(number: int) -> h.History:
    """A rough history, each third time by enhanced fan-out, with pauses of one shard or of all."""
    history = (rough_subscribing if number % 3 == 2 else rough_history)(number)
    rng = random.Random(-7 - number)
    holds: list[tuple[float, h.Event]] = []
    for _ in range(rng.randint(2, 6)):
        at, seconds = rng.uniform(2.0, 100.0), rng.choice((0.05, 3.0, 12.0, 40.0))
        place = None if rng.random() < 0.3 else rng.random()
        holds.append((at, h.Hold(rng.randrange(2), place, seconds)))
    events = in_order([*history.events, *holds], history.duration)
    if history.on_error == "retry":
        # Records that failed wait through a pause.
        history = replace(history, behaviour=replace(history.behaviour, fail=0.2))
    return replace(history, events=events)


def holding_histories() -> st.SearchStrategy[h.History]:
    """Draws the histories that `rough_holding` makes."""
    return st.integers(0, 2**20).map(rough_holding)


def paused_shards_get_no_records(world: World) -> Iterator[str]:
    """From `pause` to `resume`, no call with records begins, the retry of a failed one included."""
    for held in world.fleet.holds:
        until = _until(world, held)
        for entry in world.journal.entries:
            is_meant = entry.process == held.process and held.key in {None, entry.shard}
            if is_meant and entry.what == "records" and held.since + _SLACK < entry.at < until:
                yield f"at {entry.at:.3f} {entry.process} was given records of {entry.shard}"


def paused_shards_are_not_fetched(world: World) -> Iterator[str]:
    """From `pause` to `resume`, the worker calls no GetRecords of the shard."""
    for held in world.fleet.holds:
        until = _until(world, held)
        for (process, shard), sent in world.kinesis_client.fetches.items():
            if process != held.process or held.key not in {None, shard}:
                continue
            if found := [at for at in sent if held.since + _SLACK < at < until]:
                yield f"at {found[0]:.3f} {process} fetched {shard}, which is paused"


def _until(world: World, held: Held) -> float:
    """The end of a pause: by the program, also by another thread, with the lease or the worker.

    A process that stood still is excused from then on: a call that had begun goes on when it wakes.
    """
    threads = [one for one in world.fleet.holds if one.process == held.process]
    until = min(one.until for one in threads if one.until >= held.since)
    for process, at in world.fleet.resumed:
        if process == held.process and at >= held.since:
            until = min(until, held.since)
    for entry in world.journal.entries:
        is_later = entry.process == held.process and held.since <= entry.at < until
        taken_again = held.key is not None and (entry.what, entry.shard) == ("initialize", held.key)
        if is_later and (entry.what == "worker failed" or taken_again):
            until = entry.at
    return until if math.isfinite(until) else world.history.duration


HOLDING = (paused_shards_get_no_records, paused_shards_are_not_fetched)
