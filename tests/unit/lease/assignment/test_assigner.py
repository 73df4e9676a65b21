"""Whom a leader counts as a worker, and to whom a stopped shard goes."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from sparkinesis.lease.assignment.assigner import Assigner, to_able_workers
from sparkinesis.lease.assignment.moves import Move
from sparkinesis.lease.assignment.worker_stats import CPU, WorkerStats, members_of
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Observation, observe
from sparkinesis.lease.rules.taker import TakeSettings
from tests.unit.lease.assignment.fleets import fleet, moved

NOW = 1_800_000_000
STATS = WorkerStats("w", NOW, {CPU: (40.0, 20.0)}, {CPU: 100})


def test_members_are_the_workers_that_live() -> None:
    old = replace(STATS, worker_id="old", updated_s=NOW - 61)
    dead = replace(STATS, worker_id="dead")
    failing = replace(STATS, worker_id="failing", samples={CPU: (40.0, -1.0)})
    by_throughput = WorkerStats("t", NOW - 60)
    found = members_of([STATS, old, dead, failing, by_throughput], {"dead"}, NOW)
    assert [(one.worker_id, one.is_failing, dict(one.load)) for one in found] == [
        ("w", False, {CPU: 30.0}),
        ("failing", True, {CPU: 40.0}),
        ("t", False, {}),
    ]


def test_a_shard_goes_to_a_worker_that_has_not_stopped_it() -> None:
    row = Lease("s", "s", ExtendedSequenceNumber("1"), stopped_by=("a", "c"))
    rng = random.Random(1)
    assert to_able_workers([Move(row, "b")], {"a", "b"}, rng) == (Move(row, "b"),)
    assert to_able_workers([Move(row, "a")], {"a", "b", "c"}, rng) == (Move(row, "b"),)
    assert to_able_workers([Move(row, "a")], {"a", "c"}, rng) == ()
    owned = replace(row, owner="b")
    assert to_able_workers([Move(owned, "a")], {"a", "b", "c"}, rng) == (), "its owner keeps it"


SETTINGS = TakeSettings(10.0, 100, 100, handoff_timeout=30.0, scan_interval=1.5)


def stats_of(*workers: str) -> list[WorkerStats]:
    return [replace(STATS, worker_id=who) for who in workers]


def assign(
    assigner: Assigner,
    rows: Sequence[Lease],
    seen: Mapping[str, Observation],
    workers: Sequence[str],
    *,
    expired: Collection[str] = (),
    now: float = 100.0,
) -> dict[str, str]:
    """The new owner of each lease that moves after a scan."""
    assigner.observe_owners(rows, now)
    stats = stats_of(*workers)
    return moved(assigner.assign(stats, rows, rows, seen, expired, second=NOW, now=now))


def test_a_worker_that_lets_one_lease_expire_and_renews_another_is_a_member() -> None:
    rows = [*fleet(b=[1, 1]), *fleet(nobody=[1, 1, 1])]
    seen = observe({}, rows, 80.0, "a")
    rows[1] = replace(rows[1], counter=1)
    seen = observe(seen, rows, 100.0, "a")
    assigner = Assigner("a", "count", SETTINGS, random.Random(1))
    assigner.begin(stats_of("a", "b"), rows, NOW)
    moves = assign(assigner, rows, seen, ["a", "b"], expired={"b0"})
    assert moves.keys() == {"b0", "nobody0", "nobody1", "nobody2"}
    assert set(moves.values()) == {"a", "b"}


def test_a_lease_that_was_just_moved_rests_although_a_scan_is_behind() -> None:
    rows = fleet(a=[1] * 9)
    seen = observe({}, rows, 100.0, "a")
    assigner = Assigner("a", "count", SETTINGS, random.Random(1))
    assigner.begin(stats_of("a", "b"), rows, NOW)
    first = assign(assigner, rows, seen, ["a", "b"])
    assert len(first) == 4
    second = assign(assigner, rows, seen, ["a", "b", "c"], now=101.0)
    assert len(second) > 0
    assert first.keys().isdisjoint(second)
