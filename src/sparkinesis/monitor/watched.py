"""The state of a running application by several scans of its lease table. Pure; no wall clock.

A moving counter shows that an owner is alive, as it does to the workers themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, StreamIdentifier
from sparkinesis.lease.rules.audit import Hole, find_hole
from sparkinesis.lease.table.rows import BrokenLease
from sparkinesis.stream.position import SHARD_END, AfterRecord, Position

EXPIRED, GONE, AT_SHARD_END = "expired", "shard is gone", "at shard end"
SHORT_REASONS = (EXPIRED, GONE, AT_SHARD_END)
"""Why a lag is not known, in so few words that they fit in its column."""


class LeaseState(Enum):
    """The state of a lease."""

    UNOWNED = "unowned"
    HELD = "held"
    HANDED_OVER = "handed over"
    """Still read by ``checkpoint_owner``, and asked for by ``owner``."""
    WAITING_FOR_PARENTS = "waiting for parents"
    """Held; its shard is read once those that it came from are finished."""
    FINISHED = "finished"


def lease_states(leases: Iterable[Lease]) -> dict[str, LeaseState]:
    """The state of each lease of a table, by its key."""
    leases = list(leases)
    unfinished = {(one.stream, one.shard_id) for one in leases if not one.is_finished}
    return {one.key: _state(one, unfinished) for one in leases}


def _state(lease: Lease, unfinished: Collection[tuple[StreamIdentifier | None, str]]) -> LeaseState:
    if lease.is_finished:
        return LeaseState.FINISHED
    if lease.checkpoint_owner is not None:
        return LeaseState.HANDED_OVER
    if lease.owner is None:
        return LeaseState.UNOWNED
    if any((lease.stream, parent) in unfinished for parent in lease.parent_ids):
        return LeaseState.WAITING_FOR_PARENTS
    return LeaseState.HELD


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A lease table by several scans. Times are those of the watcher's monotonic clock."""

    leases: tuple[Lease, ...] = ()
    """At the last look."""
    began: float | None = None
    at: float = 0.0
    """The last look."""
    moved_at: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """When a higher counter was first seen, by lease key; none for a counter that stood still."""
    found_at: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The first look that showed a lease, by its key."""
    broken: tuple[BrokenLease, ...] = ()
    """At the last look."""

    @property
    def seconds(self) -> float:
        """The seconds from the first scan to the last."""
        return 0.0 if self.began is None else self.at - self.began

    def after_scan(
        self, leases: Iterable[Lease], now: float, broken: tuple[BrokenLease, ...] = ()
    ) -> WatchedTable:
        """Return the table after another scan."""
        rows = tuple(sorted(leases, key=lambda lease: lease.key))
        counters = {lease.key: lease.counter for lease in self.leases}
        moved = {row.key: now for row in rows if counters.get(row.key, row.counter) != row.counter}
        before = {row.key: self.moved_at[row.key] for row in rows if row.key in self.moved_at}
        found = {row.key: self.found_at.get(row.key, now) for row in rows}
        began = now if self.began is None else self.began
        return WatchedTable(rows, began, now, {**before, **moved}, found, broken)

    def renewed_ago(self, key: str) -> float | None:
        """Seconds since a counter was last seen to have moved, at the last look; None: it did not.

        A counter that moves between two looks is seen at the second.
        """
        moved_at = self.moved_at.get(key)
        return None if moved_at is None else self.at - moved_at

    def still_for(self, key: str) -> float:
        """Seconds that a counter stood still, as far as it was watched, at the last look."""
        return self.at - self.moved_at.get(key, self.found_at[key])


def unread_hash_keys(watched: WatchedTable) -> dict[str, Hole]:
    """Hash keys for which no lease is left to read, by stream; "" where a table has only one.

    A stream is left out while one of its leases cannot be read, or does not tell its hash keys: it
    may be the one.
    """
    by_stream: dict[str, list[Lease]] = {}
    for lease in watched.leases:
        by_stream.setdefault(lease.stream.name if lease.stream else "", []).append(lease)
    if watched.broken:
        return {}
    return {
        stream: hole
        for stream, leases in by_stream.items()
        if all(lease.is_finished or lease.hash_range is not None for lease in leases)
        and (hole := find_hole(leases)) is not None
    }


def lag_position(lease: Lease) -> Position | None:
    """The position whose distance to the tip is the lease's lag; None where there is none.

    There is none for a finished shard, and for an instant that is known to a KCL's configuration
    only. LATEST without its instant means from now on.
    """
    position = lease.position()
    if isinstance(position, AfterRecord):
        return AfterRecord(position.sequence_number)  # Lag counts whole records.
    return None if position is SHARD_END else position


def short_checkpoint(place: ExtendedSequenceNumber) -> str:
    """A checkpoint for a narrow column: the last ten of up to 56 digits; sentinels as they are."""
    digits = place.sequence_number
    if place.is_sentinel or len(digits) <= 12:
        return str(place)
    return f"…{digits[-10:]}:{place.sub_sequence_number}"
