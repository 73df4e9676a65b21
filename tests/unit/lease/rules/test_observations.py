"""What one worker has seen of the lease table: who lives, and which shards nobody reads."""

from __future__ import annotations

from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import (
    Snapshot,
    expired_leases,
    moved_leases,
    observe,
    renewing_workers,
    silent_owners,
    unread_since,
    vacant_leases,
)

FAILOVER = 9.0


def lease(key: str, owner: str | None, **given: object) -> Lease:
    return replace(Lease(key, f"shard-{key}", ExtendedSequenceNumber("5"), owner=owner), **given)


def test_shards_without_a_live_owner() -> None:
    rows = [
        lease("alive", "w"),
        lease("silent", "w"),
        lease("free", None),
        lease("asked", "v", checkpoint_owner="w"),
        lease("mine", "me"),
        lease("done", None, checkpoint=ExtendedSequenceNumber(SHARD_END)),
    ]
    seen = observe({}, rows, 100.0, "me")
    rows[0] = replace(rows[0], counter=1)
    seen = observe(seen, rows, 104.0, "me")
    unread = unread_since(rows, seen, 106.0, FAILOVER, {"mine"})
    assert unread == {"free": 100.0}
    unread = unread_since(rows, seen, 106.1, FAILOVER, {"mine"})
    assert unread == {"free": 100.0, "silent": 100.0, "asked": 100.0}
    assert "mine" in unread_since(rows, seen, 106.1, FAILOVER)


def test_only_a_renewal_shows_that_a_worker_lives() -> None:
    rows = [lease("a", "given"), lease("b", "renewing"), lease("c", "v", checkpoint_owner="old")]
    rows.append(lease("free", None))
    seen = observe({}, rows, 100.0, "me")
    assert renewing_workers(rows, seen, 100.0, FAILOVER) == set()
    rows = [replace(row, counter=1) for row in rows]
    rows[0] = replace(rows[0], owner="given anew")
    seen = observe(seen, rows, 103.0, "me")
    assert renewing_workers(rows, seen, 109.0, FAILOVER) == {"renewing", "old"}
    assert renewing_workers(rows, seen, 109.1, FAILOVER) == set()


def test_leases_are_vacant_without_a_live_owner_or_after_a_handoff_that_does_not_end() -> None:
    rows = [
        lease("free", None),
        lease("silent", "w"),
        lease("alive", "v"),
        lease("late", "v", checkpoint_owner="w"),
        lease("asked", "v"),
    ]
    seen = observe({}, rows, 100.0, "me")
    rows[4] = replace(rows[4], checkpoint_owner="w")
    rows[2:] = [replace(row, counter=1) for row in rows[2:]]
    seen = observe(seen, rows, 103.0, "me")
    expired = expired_leases(seen, 109.5, FAILOVER)
    assert expired == {"free", "silent"}
    assert vacant_leases(rows, seen, (), 103.0, late=9.0) == {"free": 100.0}
    vacant = {"free": 100.0, "silent": 100.0}
    assert vacant_leases(rows, seen, expired, 109.0, late=9.0) == vacant
    assert vacant_leases(rows, seen, expired, 109.1, late=9.0) == {**vacant, "late": 100.0}
    assert silent_owners(rows, expired, "me") == {"w": ["silent"]}
    assert silent_owners(rows, expired, "w") == {}
    done = lease("done", "w", checkpoint=ExtendedSequenceNumber(SHARD_END))
    assert silent_owners([done], {"done"}, "me") == {}


def test_which_leases_of_a_worker_have_moved_between_two_scans() -> None:
    before = [lease(key, "w", counter=1) for key in "cab"]
    before += [lease("given", "v", counter=1), lease("taken", "w", counter=1)]
    after = [replace(row, counter=2) for row in before]
    after[2] = before[2]
    after[3], after[4] = replace(after[3], owner="w"), replace(after[4], owner="v")
    assert moved_leases(before, [*after, lease("new", "w", counter=7)], "w") == ["a", "c"]


def test_a_snapshot_tells_for_how_long_shards_are_unread_unless_it_is_too_old() -> None:
    rows = (lease("a", "w"), lease("b", None), lease("c", "w"))
    snapshot = Snapshot(rows, 100.0, unread={"a": 90.0, "b": 95.0}, may_have_java_readers=True)
    assert snapshot.unread_for(100.0, {"a"}) == {"b": 5.0}
    assert snapshot.unread_for(100.1, ()) is None
    assert Snapshot(rows).unread_for(0.0, ()) is None
    assert not Snapshot().may_have_java_readers, "none was seen before the first scan"
    new = lease("a", "v")
    later = snapshot.after(["a", "b"], [new])
    assert later == Snapshot((rows[2], new), may_have_java_readers=True, audits=False)
    done = lease("done", None, checkpoint=ExtendedSequenceNumber(SHARD_END))
    assert Snapshot((rows[0], done)).unfinished == {"a"}


def test_only_a_counter_that_moves_again_and_again_shows_another_process_of_this_id() -> None:
    """Otherwise the worker would end itself, or leave a lease that it was given to nobody."""
    seen = observe({}, [lease("a", "v"), lease("b", "me")], 100.0, "me")
    given = [lease("a", "me", counter=1), lease("b", "me")]
    for now in (101.0, 102.0, 103.0):
        seen = observe(seen, given, now, "me")
        assert [one.foreign_renewals for one in seen.values()] == [0, 0]
    renewed = [replace(row, counter=2) for row in given]
    seen = observe(seen, renewed, 104.0, "me")
    assert [one.foreign_renewals for one in seen.values()] == [1, 1]
    seen = observe(seen, renewed, 105.0, "me", {"a"})
    assert [one.foreign_renewals for one in seen.values()] == [0, 1], "it was this worker"
    assert {one.since for one in seen.values()} == {104.0}
