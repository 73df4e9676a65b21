"""The shards that no live worker reads, by one worker's observations of the lease table. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.taker import Observation

_MISSED = 2 / 3
"""The part of the failover time after which an owner that has not renewed counts as silent: KCLs
renew three times within it."""


def unread_since(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    now: float,
    failover_time: float,
    held: Collection[str] = (),
) -> dict[str, float]:
    """Return the time since which nobody reads a shard, by lease key, as far as it was observed.

    These are unfinished shards without an owner, or whose owner has missed two renewals. ``held``:
    keys of the leases that the observing worker holds. Each lease needs an observation.
    """
    return {
        row.key: observations[row.key].since
        for row in leases
        if not row.is_finished
        and row.key not in held
        and (
            row.actual_owner is None or now - observations[row.key].since > _MISSED * failover_time
        )
    }
