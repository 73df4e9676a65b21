"""The positions at which new leases start, and the application's first instant. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    InitialPosition,
    Position,
)
from sparkinesis.stream.shard import Shard

ANY_AGE = AtTimestamp(0)
"""The arrival times known for a lease whose shard may have lost records of any age."""

KNOWN_EVERY_MS = 300_000
"""Arrival times are written only if they are this much newer than those in the row."""

STARTS_WITHIN_MS = 300_000
"""The time that an application at TRIM_HORIZON takes to start reading. Records that expire within
it count as expired before."""


class WantedRecords(msgspec.Struct, frozen=True):
    """The records that a lease wants from a shard that was never read."""

    nothing_before: AtTimestamp | None = None
    """The instant before which no wanted record arrived."""
    made_ms: int | None = None
    """Without `nothing_before`: the instant (epoch ms) whose kept records are wanted; None: now."""
    skipped_before_ms: int | None = None
    """Records that arrived before this (epoch ms) are not wanted in any case."""

    def may_have_lost(self, now_ms: int, retention_ms: int) -> bool:
        """Return True if some wanted records may have expired, if the shard is old enough."""
        skipped_ms = self.skipped_before_ms
        if skipped_ms is not None and skipped_ms >= now_ms - retention_ms:
            return False
        if self.nothing_before is not None:
            return self.nothing_before.ms < now_ms - retention_ms
        return self.made_ms is not None and now_ms - self.made_ms > STARTS_WITHIN_MS


def wanted_records(lease: Lease, initial: Position) -> WantedRecords:
    """Return the records that a lease with a sentinel as its checkpoint wants.

    ``initial``: the application's initial position, where a KCL's AT_TIMESTAMP starts. If a lease
    has no instants (a KCL's or an older version's), the age of the records that its shard may have
    lost is unknown. If the shard has no parents either, the lease is one of a first start.
    """
    instant_ms = lease.timestamp_ms
    if instant_ms is None and lease.checkpoint.sequence_number == AT_TIMESTAMP:
        instant_ms = initial.ms if isinstance(initial, AtTimestamp) else None
    known = lease.known if isinstance(lease.known, AtTimestamp) else None
    if instant_ms is not None:
        return WantedRecords(AtTimestamp(max(instant_ms, known.ms if known else 0)))
    if known is None and lease.made_ms is None and lease.parent_ids:
        known = ANY_AGE
    return WantedRecords(known, lease.made_ms)


def last_known_position(lease: Lease) -> AfterRecord | AtTimestamp | None:
    """Return the newest position at which the lease's stream is known to have existed, if any."""
    if isinstance(lease.known, AfterRecord):
        return lease.known
    instants = [lease.made_ms]
    if lease.known is not None and lease.known != ANY_AGE:
        instants.append(lease.known.ms)
    if lease.checkpoint.is_latest:
        instants.append(lease.timestamp_ms)
    newest_ms = max((ms for ms in instants if ms is not None), default=None)
    return None if newest_ms is None else AtTimestamp(newest_ms)


def arrival_news(
    lease: Lease, known: tuple[ExtendedSequenceNumber, AfterRecord | AtTimestamp] | None
) -> AfterRecord | AtTimestamp | None:
    """Return the arrival times known at the lease's checkpoint, if they are worth a write.

    ``known``: arrival times, and the checkpoint at which they are known.
    """
    if known is None or known[0] != lease.checkpoint:
        return None
    stored_ms = _clear_until(lease.known) or lease.timestamp_ms or 0
    return known[1] if (_clear_until(known[1]) or 0) >= stored_ms + KNOWN_EVERY_MS else None


def _clear_until(known: AfterRecord | AtTimestamp | None) -> int | None:
    if isinstance(known, AtTimestamp):
        return known.ms
    return None if known is None else known.clear_until


def new_lease(
    shard: Shard,
    at: InitialPosition,
    timestamp_ms: int | None = None,
    *,
    made_ms: int | None = None,
) -> Lease:
    """Return a new lease of a shard at an initial position.

    ``timestamp_ms``: the instant that LATEST means, so that a restart, or a reshard before
    the first checkpoint, does not lose it; ignored for other positions. ``made_ms``: now.
    """
    if isinstance(at, AtTimestamp):
        timestamp_ms = at.ms
    elif at is TRIM_HORIZON:
        timestamp_ms = None
    return Lease(
        key=shard.id,
        shard_id=shard.id,
        checkpoint=ExtendedSequenceNumber.of(at),
        parent_ids=tuple(sorted(shard.parents)),
        hash_range=shard.hash_range,
        timestamp_ms=timestamp_ms,
        made_ms=made_ms,
    )


class LeaseStart(msgspec.Struct, frozen=True):
    """The start of a shard when neither it nor any ancestor has a lease."""

    at: InitialPosition
    timestamp_ms: int | None = None
    """The instant that LATEST means."""
    application_ms: int | None = None
    """See `Lease`; for all leases that are made."""
    made_ms: int | None = None
    """See `Lease`; for all leases that are made."""
    known: AtTimestamp | None = None
    """The arrival times known for a lease at TRIM_HORIZON; see `Lease`."""
    is_now: bool = False
    """True if LATEST means this moment: older records and closed shards are not wanted."""

    @property
    def instant(self) -> AtTimestamp | None:
        """The instant since which records are wanted; None: all kept records, or none so far."""
        if isinstance(self.at, AtTimestamp):
            return self.at
        if self.at is LATEST and self.timestamp_ms is not None and not self.is_now:
            return AtTimestamp(self.timestamp_ms)
        return None

    def may_have_lost(self, now_ms: int, retention_ms: int) -> bool:
        """Return True if wanted records may have expired by now, in shards that are old enough."""
        known = self.instant or self.known
        return WantedRecords(known, self.made_ms).may_have_lost(now_ms, retention_ms)

    def lease(self, shard: Shard) -> Lease:
        """Return the lease of a shard that starts there."""
        lease = new_lease(shard, self.at, self.timestamp_ms, made_ms=self.made_ms)
        return replace(lease, application_ms=self.application_ms, known=self.known)

    def child(self, shard: Shard, not_before_ms: int | None = None) -> Lease:
        """Return the lease of a shard whose parents are finished.

        ``not_before_ms``: no record of the shard arrived before this; None: unknown.
        """
        lease = new_lease(shard, TRIM_HORIZON, made_ms=self.made_ms)
        known = ANY_AGE if not_before_ms is None else AtTimestamp(not_before_ms)
        return replace(lease, application_ms=self.application_ms, known=known)


def application_start_ms(leases: Iterable[Lease]) -> int | None:
    """Return the instant (epoch ms) at which the application began at LATEST, by its leases.

    0: the leases say that it is unknown. None: no lease has it. The earliest of several instants
    counts, so that no record is skipped. A finished lease may be older than the application's last
    reset to LATEST, and counts only if no other lease has the instant.
    """
    by_finished: dict[bool, list[int]] = {True: [], False: []}
    for lease in leases:
        if lease.began_ms is not None:
            by_finished[lease.is_finished].append(lease.began_ms)
    return min(by_finished[False] or by_finished[True], default=None)


def lease_start(
    leases: Iterable[Lease], shards: Iterable[Shard], initial: InitialPosition, now_ms: int
) -> LeaseStart:
    """Return the start of a shard that lacks a lease, when no ancestor has a lease either.

    ``initial``: the application's initial position. LATEST means the application's first instant,
    by its leases. If no lease has it, no record may be skipped, so the shard starts at
    TRIM_HORIZON.

    LATEST means now only if every lease belongs to a listed shard and is at LATEST without an
    instant, as a KCL writes it. Then no worker has started to read, and a KCL takes LATEST for the
    moment at which it starts.
    """
    leases = list(leases)
    first_ms = application_start_ms(leases)
    if isinstance(initial, AtTimestamp):
        return LeaseStart(initial, None, first_ms, now_ms)
    if initial is TRIM_HORIZON:
        # All records that were kept when the application began are wanted.
        made_ms = min((one.made_ms for one in leases if one.made_ms is not None), default=None)
        known = ANY_AGE if made_ms is None or any(map(_is_of_unknown_age, leases)) else None
        return LeaseStart(initial, None, first_ms, made_ms or now_ms, known)
    if first_ms:
        return LeaseStart(initial, first_ms, first_ms, now_ms)
    if first_ms is None and _is_unread(leases, shards):
        return LeaseStart(initial, now_ms, now_ms, now_ms, is_now=True)
    return LeaseStart(TRIM_HORIZON, None, first_ms, now_ms, ANY_AGE)


def _is_of_unknown_age(lease: Lease) -> bool:
    """Return True if a lease without an instant may be older than all leases that have one.

    A KCL or an older version made it, or a worker at a shard's end whose time is unknown. A lease
    of a shard without parents that nobody has begun to read belongs to a first start.
    """
    has_begun = lease.checkpoint.is_shard_end or not lease.checkpoint.is_sentinel
    return lease.made_ms is None and (has_begun or bool(lease.parent_ids))


def _is_unread(leases: Iterable[Lease], shards: Iterable[Shard]) -> bool:
    """Return True if all leases are at a KCL's LATEST, of listed shards."""
    listed = {shard.id for shard in shards}
    return all(lease.checkpoint.is_latest and lease.shard_id in listed for lease in leases)
