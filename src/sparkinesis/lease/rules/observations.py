"""The leases of a table as one worker observes them, scan after scan. Pure.

Each worker measures by its own monotonic clock (seconds). A crash is noticed by a counter that
stands still, from the first scan that shows its last value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from sparkinesis.lease.lease import Lease

_MISSED = 2 / 3
"""The part of the failover time after which an owner that has not renewed counts as silent: KCLs
renew three times within it."""


class Observation(msgspec.Struct, frozen=True):
    """The state of a lease as this worker saw it."""

    counter: int
    since: float
    """The time at which the counter was first seen at this value."""
    owners: tuple[str | None, str | None]
    """Owner and checkpoint owner."""
    owners_since: float
    foreign_renewals: int = 0
    """The number of times that another process moved the counter while the row named this worker as
    owner, and this worker did not hold the lease."""


class Snapshot(msgspec.Struct, frozen=True):
    """The lease table as one worker observed it by its last scan."""

    leases: tuple[Lease, ...] = ()
    at: float | None = None
    """The time of the scan, by the worker's clock; None before the first, and while the worker
    reads only its own rows: the others are as of the last scan then."""
    expired: frozenset[str] = frozenset()
    """Keys of the leases whose owners have not renewed for a failover time."""
    unread: Mapping[str, float] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The time since which no live worker reads a shard, by lease key; see `unread_since`."""
    may_have_java_readers: bool = False
    """True if a Java KCL may share these leases."""
    audits: bool | None = None
    """Whether this worker audits all leases; None: the leases show who audits them."""

    def unread_for(self, oldest: float, held: Collection[str]) -> dict[str, float] | None:
        """Return for how many seconds shards are unread, by lease key; None if the scan is too old.

        ``oldest``: the earliest time of a scan that counts. ``held``: leases that are read since.
        """
        at = self.at
        if at is None or at < oldest:
            return None
        return {key: at - since for key, since in self.unread.items() if key not in held}

    def after(self, read: Iterable[str], rows: Iterable[Lease]) -> Snapshot:
        """Return the leases after some were read: ``rows``, and none for the other keys."""
        found = {row.key: row for row in rows}
        gone = found.keys() | set(read)
        leases = (*(row for row in self.leases if row.key not in gone), *found.values())
        java = self.may_have_java_readers
        return Snapshot(leases, may_have_java_readers=java, audits=False)

    @property
    def unfinished(self) -> frozenset[str]:
        """The keys of the leases whose shards are not finished."""
        return frozenset(row.key for row in self.leases if not row.is_finished)


def observe(
    known: Mapping[str, Observation],
    leases: Iterable[Lease],
    now: float,
    worker_id: str,
    held: Collection[str] = frozenset(),
    *,
    is_own: Callable[[Lease], bool] = lambda _: False,
) -> dict[str, Observation]:
    """Return the observations after one more scan; deleted leases are forgotten.

    ``now`` is the time after the scan, so that no lease seems older than it is. ``held``: the keys
    of all leases that this worker held before the scan or holds after it. ``is_own``: returns True
    if a write of this worker may have left the row's counter, even if the lease was lost since.

    Unlike in the KCL, a new lease without an owner counts as first seen now, not as very old.
    """
    seen = {}
    for lease in leases:
        owners = (lease.owner, lease.checkpoint_owner)
        old = known.get(lease.key)
        if old is None:
            seen[lease.key] = Observation(lease.counter, now, owners, now)
            continue
        has_moved = old.counter != lease.counter
        is_same = old.owners == owners
        foreign_renewals = 0
        # checkpointOwner alone proves nothing: a KCL before 3.0 keeps it in a lease that it takes.
        if is_same and owners == (worker_id, None) and lease.key not in held:
            foreign_renewals = old.foreign_renewals + (has_moved and not is_own(lease))
        if is_same and not has_moved and foreign_renewals == old.foreign_renewals:
            seen[lease.key] = old
            continue
        seen[lease.key] = Observation(
            lease.counter,
            now if has_moved else old.since,
            owners,
            old.owners_since if is_same else now,
            foreign_renewals,
        )
    return seen


def is_expired(observation: Observation, now: float, failover_time: float) -> bool:
    """Return True if the owner has not renewed for longer than ``failover_time`` seconds."""
    return now - observation.since > failover_time


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


def expired_leases(
    observations: Mapping[str, Observation], now: float, failover_time: float
) -> frozenset[str]:
    """Return the keys of the leases whose owners have not renewed for a failover time."""
    return frozenset(
        key for key, seen in observations.items() if is_expired(seen, now, failover_time)
    )


def vacant_leases(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    expired: Collection[str],
    now: float,
    *,
    late: float,
) -> dict[str, float]:
    """Return the keys of the leases that have no live owner, and the time of each since when.

    late: the seconds after which a handoff that has not ended counts as such. Each lease needs an
    observation.
    """
    found = {}
    for row in leases:
        seen = observations[row.key]
        if row.actual_owner is None or row.key in expired:
            found[row.key] = seen.since
        elif row.checkpoint_owner is not None and now - seen.owners_since > late:
            found[row.key] = seen.owners_since
    return found


def renewing_workers(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    now: float,
    failover_time: float,
) -> frozenset[str]:
    """Return the workers that have renewed a lease, and have not missed two renewals since.

    The write that gives a lease to a worker moves the counter, too, and is no renewal. Each lease
    needs an observation.
    """
    return frozenset(
        row.actual_owner
        for row in leases
        if row.actual_owner is not None
        and (seen := observations[row.key]).since > seen.owners_since
        and now - seen.since <= _MISSED * failover_time
    )


def silent_owners(
    leases: Iterable[Lease], expired: Collection[str], worker_id: str
) -> dict[str, list[str]]:
    """Return the other workers that let leases expire, with the keys of these leases."""
    silent: defaultdict[str, list[str]] = defaultdict(list)
    for row in leases:
        owner = row.actual_owner
        if row.key in expired and not row.is_finished and owner not in {None, worker_id}:
            silent[str(owner)].append(row.key)
    return dict(silent)


def moved_leases(before: Iterable[Lease], after: Iterable[Lease], worker_id: str) -> list[str]:
    """Return the keys of a worker's leases whose counters differ between two scans, in order."""
    counters = {row.key: row.counter for row in before if row.actual_owner == worker_id}
    return sorted(
        row.key
        for row in after
        if row.actual_owner == worker_id and counters.get(row.key, row.counter) != row.counter
    )
