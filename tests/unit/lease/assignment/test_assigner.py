"""Whom a leader counts as a worker, and to whom a stopped shard goes."""

from __future__ import annotations

import random

from msgspec.structs import replace

from sparkinesis.lease.assignment.assigner import to_able_workers
from sparkinesis.lease.assignment.members import members_of
from sparkinesis.lease.assignment.moves import Move
from sparkinesis.lease.assignment.worker_stats import CPU, WorkerStats
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease

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
