"""Which shards no live worker reads, by what one worker has seen of the lease table."""

from __future__ import annotations

from dataclasses import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import observe, unread_since

FAILOVER = 9.0


def lease(key: str, owner: str | None, **given: object) -> Lease:
    return replace(Lease(key, f"shard-{key}", ExtendedSequenceNumber("5"), owner=owner), **given)  # type: ignore[arg-type]


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
