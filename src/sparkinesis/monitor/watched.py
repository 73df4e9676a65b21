"""The state of a running application by several scans of its lease table. Pure; no wall clock.

An owner is alive if the counters of its leases move. Workers use the same rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, leases_by_stream
from sparkinesis.lease.rules.audit import Hole, find_hole
from sparkinesis.lease.table.rows import BrokenLease
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import SHARD_END, AfterRecord, Position

EXPIRED, GONE, AT_SHARD_END = "expired", "shard is gone", "at shard end"
NO_STREAM, MADE_ANEW = "stream not found", "stream made anew"
SHORT_REASONS = (EXPIRED, GONE, AT_SHARD_END, NO_STREAM, MADE_ANEW)
"""The reasons for an unknown lag that are short enough for the lag's column."""


QUIET = 7.0
"""Seconds without a renewal after which an owner counts as dead: KCLs renew every 3.3 seconds by
default."""


class LeaseState(Enum):
    """The state of a lease."""

    UNOWNED = "unowned"
    STOPPED = "stopped"
    """Without an owner, and ``Stop`` has stopped its shard on workers: those do not take it."""
    HELD = "held"
    HANDED_OVER = "handed over"
    """Still read by ``checkpoint_owner``, and requested by ``owner``."""
    WAITING_FOR_PARENTS = "waiting for parents"
    """Held; its shard is read once the parents of the shard are finished. (Or it is read already,
    with ``parents_first=False``, and has no checkpoint yet.)"""
    FINISHED = "finished"


def lease_states(leases: Iterable[Lease]) -> dict[str, LeaseState]:
    """Return the state of each lease of a table, by lease key."""
    leases = list(leases)
    unfinished = {(one.stream, one.shard_id) for one in leases if not one.is_finished}
    return {one.key: _state(one, unfinished) for one in leases}


def _state(lease: Lease, unfinished: Collection[tuple[StreamIdentifier | None, str]]) -> LeaseState:
    if lease.is_finished:
        return LeaseState.FINISHED
    if lease.checkpoint_owner is not None:
        return LeaseState.HANDED_OVER
    if lease.owner is None:
        return LeaseState.STOPPED if lease.stopped_by else LeaseState.UNOWNED
    has_begun = not lease.checkpoint.is_sentinel  # before its parents: ``parents_first=False``
    if not has_begun and any((lease.stream, one) in unfinished for one in lease.parent_ids):
        return LeaseState.WAITING_FOR_PARENTS
    return LeaseState.HELD


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A lease table by several scans. Times are those of the watcher's monotonic clock."""

    leases: tuple[Lease, ...] = ()
    """The leases at the last scan."""
    began: float | None = None
    """The time of the first scan."""
    at: float = 0.0
    """The time of the last scan."""
    moved_at: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The time at which the counter last moved, by lease key; no entry if it never moved."""
    found_at: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The time of the first scan that showed a lease, by lease key."""
    broken: tuple[BrokenLease, ...] = ()
    """The rows that could not be read at the last scan."""

    @property
    def seconds(self) -> float:
        """The seconds from the first scan to the last."""
        return 0.0 if self.began is None else self.at - self.began

    def after_scan(
        self, leases: Iterable[Lease], now: float, broken: tuple[BrokenLease, ...] = ()
    ) -> WatchedTable:
        """Return the table after another scan."""
        rows = tuple(sorted(leases, key=_order))
        counters = {lease.key: lease.counter for lease in self.leases}
        moved = {row.key: now for row in rows if counters.get(row.key, row.counter) != row.counter}
        before = {row.key: self.moved_at[row.key] for row in rows if row.key in self.moved_at}
        found = {row.key: self.found_at.get(row.key, now) for row in rows}
        began = now if self.began is None else self.began
        return WatchedTable(rows, began, now, {**before, **moved}, found, broken)

    @property
    def streams(self) -> frozenset[StreamIdentifier]:
        """The streams that leases name."""
        return frozenset(lease.stream for lease in self.leases if lease.stream is not None)

    def of(self, streams: Collection[StreamIdentifier]) -> WatchedTable:
        """Return only the leases of these streams, and those that name no stream."""
        names = {"", *map(str, streams)}
        return replace(
            self,
            leases=tuple(one for one in self.leases if one.stream is None or one.stream in streams),
            broken=tuple(row for row in self.broken if row.stream_id in names),
        )

    def renewed_ago(self, key: str) -> float | None:
        """Return the seconds from a counter's last move to the last scan; None if it never moved.

        A counter that moves between two scans moves at the time of the second.
        """
        moved_at = self.moved_at.get(key)
        return None if moved_at is None else self.at - moved_at

    def still_for(self, key: str) -> float:
        """Return the seconds up to the last scan in which a lease's counter did not move."""
        return self.at - self.moved_at.get(key, self.found_at[key])


def unread_for(watched: WatchedTable, quiet: float = QUIET) -> dict[str, float]:
    """Return for how many seconds no live worker has read a shard, by lease key.

    As far back as the table was watched. These are unfinished leases without an owner, or that were
    not renewed for ``quiet`` seconds.
    """
    return {
        lease.key: seconds
        for lease in watched.leases
        if not lease.is_finished
        and (seconds := watched.still_for(lease.key)) >= (quiet if lease.actual_owner else 0.0)
    }


def counted_lag(measured: int | None, unread_seconds: float | None) -> int | None:
    """Return a lag in milliseconds that is at least the time for which the shard was not read.

    measured: the lag of the checkpoint; None if unknown. unread_seconds: None for a shard that a
    live worker reads; 0 at the first scan, which says nothing.
    """
    if not unread_seconds:
        return measured
    return max(measured or 0, round(unread_seconds * 1000))


def unread_hash_keys(watched: WatchedTable) -> dict[StreamIdentifier | None, Hole]:
    """Return hash keys that no unfinished lease covers, by stream; None: the leases name none.

    A stream is left out if one of its unfinished leases has no hash range, or if a row of its
    leases cannot be read: that lease may cover the keys.
    """
    broken = {row.stream_id for row in watched.broken}
    return {
        stream: hole
        for stream, leases in leases_by_stream(watched.leases).items()
        if str(stream or "") not in broken
        and all(lease.is_finished or lease.hash_range is not None for lease in leases)
        and (hole := find_hole(leases)) is not None
    }


def _order(lease: Lease) -> tuple[str, str, int, str]:
    """Return the sort key of a lease: its stream's name comes before the account."""
    stream = lease.stream
    if stream is None:
        return "", "", 0, lease.key
    return stream.name, stream.account, stream.creation_epoch, lease.shard_id


def lag_position(lease: Lease) -> Position | None:
    """Return the position whose distance to the tip is the lease's lag; None if it has no lag.

    A finished shard has no lag, and neither has an instant that only a KCL's configuration holds.
    LATEST without its instant means from now on.
    """
    position = lease.position()
    if isinstance(position, AfterRecord):
        return AfterRecord(position.sequence_number)  # Lag counts whole records.
    return None if position is SHARD_END else position


def short_checkpoint(place: ExtendedSequenceNumber) -> str:
    """Return a checkpoint for a narrow column: the last ten of up to 56 digits, or a sentinel."""
    digits = place.sequence_number
    if place.is_sentinel or len(digits) <= 12:
        return str(place)
    return f"…{digits[-10:]}:{place.sub_sequence_number}"
