"""Fleets for the tests of assignments: leases by owner, and what a plan makes of them."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from sparkinesis.lease.assignment import by_count, by_load
from sparkinesis.lease.assignment.moves import AssignSettings, Move, Run
from sparkinesis.lease.assignment.worker_stats import WorkerLoad
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease

DEFAULTS = AssignSettings()
PLANS = {"count": by_count.plan, "load": by_load.plan}


def fleet(**kbps: Sequence[float | None]) -> list[Lease]:
    """The leases of each worker, by their KB/s; the worker ``nobody`` is none.

    The keys are ``a0``, ``a1``, ...
    """
    return [
        Lease(
            f"{who}{n}",
            f"{who}{n}",
            ExtendedSequenceNumber("5"),
            owner=None if who == "nobody" else who,
            throughput_kbps=value,
        )
        for who, values in kbps.items()
        for n, value in enumerate(values)
    ]


def workers(*names: str) -> list[WorkerLoad]:
    """Workers without metrics."""
    return [WorkerLoad(name) for name in names]


def cpu(**values: float) -> list[WorkerLoad]:
    """Workers that measure CPU, and may use all of it."""
    return [WorkerLoad(who, {"C": value}, {"C": 100.0}) for who, value in values.items()]


def plan(
    leases: Sequence[Lease],
    members: Sequence[WorkerLoad],
    rule: str = "load",
    *,
    vacant: Mapping[str, float] | None = None,
    resting: Collection[str] = (),
    balances: bool = True,
    settings: AssignSettings = DEFAULTS,
    seed: int = 1,
) -> tuple[Move, ...]:
    """The plan of a run; by default, leases without an owner are vacant."""
    if vacant is None:
        vacant = {row.key: 0.0 for row in leases if row.owner is None}
    rng = random.Random(seed)
    return PLANS[rule](Run(leases, members, vacant, resting, balances, settings, rng))


def moved(moves: Sequence[Move]) -> dict[str, str]:
    """The new owner of each lease that moves."""
    return {move.lease.key: move.to for move in moves}


def after(leases: Sequence[Lease], moves: Sequence[Move]) -> list[Lease]:
    """The leases once all moves are done."""
    to = moved(moves)
    return [replace(row, owner=to.get(row.key, row.owner)) for row in leases]


def sums(leases: Sequence[Lease]) -> dict[str | None, float]:
    """The KB/s of each owner."""
    found: dict[str | None, float] = {}
    for row in leases:
        found[row.owner] = found.get(row.owner, 0.0) + (row.throughput_kbps or 0.0)
    return found
