"""How soon leases change hands: deadlines in virtual time, of three workers and six shards.

Real processes do the same in `tests/integration/worker/test_fleet.py`, where order counts, and not
seconds.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from sparkinesis.worker.options import WorkerOptions
from tests.simulation.history import (
    Crash,
    Event,
    History,
    Merge,
    Pause,
    Put,
    Shutdown,
    Split,
    Start,
)
from tests.simulation.invariants import check
from tests.simulation.world import World

_FAILOVER = 5.0
_OPTIONS = WorkerOptions(failover_time=_FAILOVER)
_SHARDS = 6
_AT = 60.0
"""When it happens; three workers share the leases by then."""
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10)))
_LATENCY = 1.0
"""Seconds that calls, a scan's age and a batch at hand take."""


def _world(*events: tuple[float, Event], seed: int = 0) -> World:
    puts = tuple((2.0 + n / 2, Put(n % 48)) for n in range(200))
    starts = tuple((float(n), Start(n)) for n in range(3))
    history = History(
        seed=seed,
        shards=_SHARDS,
        events=tuple(sorted((*starts, *puts, *events), key=lambda event: event[0])),
        options={"failover_time": _FAILOVER, "handoff_timeout": _FAILOVER, "idle_time": 1.0},
        duration=110.0,
    )
    world = World(history).run()
    assert check(world) == []
    return world


def _owners(world: World) -> list[tuple[float, dict[str, str | None]]]:
    """The owners of unfinished leases, by shard, after each write."""
    found: list[tuple[float, dict[str, str | None]]] = []
    owners: dict[str, str | None] = {}
    for write, _, after in world.leases():
        if after is None or after.is_finished:
            owners.pop(write.key, None)
        else:
            owners[write.key] = after.actual_owner
        found.append((write.at, dict(owners)))
    return found


def _worker_ids(world: World, number: int) -> set[str]:
    """The ids of all lives of a worker."""
    return {
        id_
        for process, id_ in world.fleet.worker_ids.items()
        if process.name.startswith(f"worker {number},")
    }


def _taken_after(world: World, number: int, since: float = _AT) -> float:
    """Seconds from ``since`` on until others own all that was the worker's."""
    gone = {None, *_worker_ids(world, number)}
    return next(
        at - since
        for at, owners in _owners(world)
        if at > since and not gone & set(owners.values())
    )


def _fair_after(world: World, since: float, until: float, workers: int) -> float:
    """Seconds from ``since`` on after which the leases are fairly shared until then."""
    unfair = since
    looks = _owners(world)
    for (at, owners), (next_at, _) in pairwise(looks):
        counts = [list(owners.values()).count(owner) for owner in set(owners.values())]
        is_fair = None not in owners.values() and len(counts) == workers
        if not (is_fair and max(counts) - min(counts) <= 1) and next_at > since and at < until:
            unfair = min(next_at, until)
    return unfair - since


@pytest.mark.parametrize("seed", SEEDS)
def test_released_leases_are_taken_before_they_would_have_expired(seed: int) -> None:
    world = _world((_AT, Shutdown(1)), seed=seed)
    assert _taken_after(world, 1) < _FAILOVER - _OPTIONS.renew_interval


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", [Crash(1), Pause(1, 30.0)])
def test_leases_that_nobody_renews_are_taken_after_the_failover_time(
    what: Event, seed: int
) -> None:
    world = _world((_AT, what), seed=seed)
    after = _taken_after(world, 1)
    assert _FAILOVER - _OPTIONS.renew_interval - _LATENCY <= after
    assert after <= _FAILOVER + 2 * _OPTIONS.taker_interval + _LATENCY


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crash_at_any_instant_costs_a_failover_time_and_a_renew_interval(seed: int) -> None:
    """On average less: the worker's last renewal was half an interval ago."""
    crashes = [_AT + part * _OPTIONS.renew_interval for part in (0.0, 0.2, 0.4, 0.6, 0.8)]
    waits = [_taken_after(_world((at, Crash(1)), seed=seed), 1, at) for at in crashes]
    assert max(waits) <= _FAILOVER + _OPTIONS.renew_interval + _LATENCY
    assert sum(waits) / len(waits) <= _FAILOVER + _OPTIONS.taker_interval + _LATENCY / 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("events", "workers", "detection"),
    [
        (((_AT, Start(3)),), 4, 0.0),
        (((_AT, Shutdown(1)),), 2, 0.0),
        (((_AT, Split(0.3)), (_AT + 0.1, Split(0.7))), 3, 0.0),
        (((_AT, Merge(0.3)),), 3, 0.0),
        (((_AT, Crash(1)),), 2, _FAILOVER + _OPTIONS.taker_interval),
        (((_AT, Crash(1)), (_AT, Start(3))), 3, _FAILOVER + _OPTIONS.taker_interval),
    ],
)
def test_leases_are_soon_shared_fairly(
    events: tuple[tuple[float, Event], ...], workers: int, detection: float, seed: int
) -> None:
    world = _world(*events, seed=seed)
    patience = detection + 3 * _OPTIONS.taker_interval + _LATENCY
    assert _fair_after(world, _AT, 110.0, workers) <= patience
