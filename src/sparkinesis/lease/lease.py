"""A lease: the row of a lease table with the owner of a shard and its checkpoint.

The attributes are those of the KCL's ``DynamoDBLeaseSerializer`` (Java, 1.x to 3.x), and eight
of ours, which the KCL keeps and ignores:

========================  ==========================================================================
``checkpointTimestamp``   the instant that the checkpoint LATEST or AT_TIMESTAMP means
``checkpointPosition``    the text of a position (`sparkinesis.stream.position`): the checkpoint's,
                          with the known arrival times
``applicationTimestamp``  the instant at which the application began at LATEST; 0: unknown
``leaseTimestamp``        the instant at which the row was created or reset
``fencingToken``          the token of the last acquisition (`sparkinesis.lease.table.fencing`)
``stoppedBy``             the workers on which ``on_error`` has stopped the shard
``streamMark``            the stream of the row: `sparkinesis.stream.address.StreamMark`; only where
                          the application reads one stream, whose rows have no ``streamName``
``convertedTo``           during `sparkinesis convert-leases`, the key of the row that replaces it
========================  ==========================================================================

Instants are in epoch milliseconds, by the service's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.public import public
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from sparkinesis.stream.position import (
    END_OF_TIME_MS,
    AfterRecord,
    AtTimestamp,
    Sentinel,
    parse_position,
)
from sparkinesis.stream.shard import MAX_HASH_KEY

AttributeValue: TypeAlias = Mapping[str, Any]

MOST_TOKEN = 2**63 - 1
"""The last fencing token, which databases can store as a signed integer of 64 bits."""


@public
@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """The first phase of a two-phase checkpoint: prepared, not yet in force."""

    at: ExtendedSequenceNumber
    state: bytes | None = None
    """The application's own state, for its recovery after a crash."""


class Lease(msgspec.Struct, frozen=True):
    """A row of the lease table."""

    key: str
    """The shard id; in the table of several streams ``<stream identifier>:<shard id>``."""
    shard_id: str
    checkpoint: ExtendedSequenceNumber
    """Everything up to the checkpoint is done."""
    stream: StreamIdentifier | None = None
    """The stream; None in the table of an application that reads a single stream."""
    parent_ids: tuple[str, ...] = ()
    """The shard ids of the parents, sorted (shard ids even if the key is longer)."""
    owner: str | None = None
    """The worker that reads the shard, or will once ``checkpoint_owner`` has released it."""
    counter: int = 0
    """Incremented by every write of the owner: it fences writes, and shows that the owner lives."""
    owner_switches: int = 0
    """Changes of owner since the last checkpoint."""
    pending: PendingCheckpoint | None = None
    child_ids: tuple[str, ...] = ()
    """The shard ids of the children, sorted; known once the shard has ended."""
    hash_range: tuple[int, int] | None = None
    """First and last hash key of the shard, both inclusive."""
    throughput_kbps: float | None = None
    checkpoint_owner: str | None = None
    """During a handoff, the worker that still reads the shard."""
    timestamp_ms: int | None = None
    """The instant (epoch ms) that the checkpoint LATEST or AT_TIMESTAMP means, if known."""
    known: AfterRecord | AtTimestamp | None = None
    """The arrival times known at the checkpoint. For a record: its arrival, and the time until
    which no record followed. For a sentinel: an instant before which no unread record arrived."""
    application_ms: int | None = None
    """The instant (epoch ms) at which the application began at LATEST; None: not in the row;
    0: the instant is unknown, and no record may be skipped."""
    made_ms: int | None = None
    """The time (epoch ms) at which the lease was created or last reset."""
    stopped_by: tuple[str, ...] = ()
    """The ids of the workers on which ``on_error`` has stopped the shard, sorted."""
    fencing_token: int | None = None
    """The token of the last acquisition; None if no worker of this library has acquired it."""
    mark: StreamMark | None = None
    """The only stream of the application; None: a KCL, or an older version, wrote the row."""

    def in_stream(self, stream: StreamIdentifier | None) -> Lease:
        """Return this lease as a row of one of several streams; None: of the only stream."""
        return replace(self, key=lease_key(stream, self.shard_id), stream=stream)

    @property
    def shard_name(self) -> str:
        """The shard's name in errors and log lines; with several streams it names the stream."""
        return self.shard_id if self.stream is None else f"{self.shard_id} of {self.stream}"

    @property
    def parent_keys(self) -> tuple[str, ...]:
        """The lease keys of the parents."""
        return tuple(lease_key(self.stream, parent) for parent in self.parent_ids)

    def position(self) -> AfterRecord | AtTimestamp | Sentinel | None:
        """Return the position of the checkpoint, with its instant or its arrival times.

        LATEST is the position of a row that a Java KCL wrote at LATEST, without an instant. None is
        the position of AT_TIMESTAMP without an instant, which only the KCL's configuration holds.
        Raises ValueError for a checkpoint that is neither a sequence number nor a sentinel.
        """
        at = self.checkpoint
        if at.is_at_instant and self.timestamp_ms is not None:
            return AtTimestamp(self.timestamp_ms)
        position = at.position()
        if isinstance(position, AfterRecord) and isinstance(self.known, AfterRecord):
            return replace(self.known, sub_sequence_number=position.sub_sequence_number)
        return position

    @property
    def began_ms(self) -> int | None:
        """The application's first instant; None if the row does not hold it.

        A row of an older version holds it until the first checkpoint.
        """
        if self.application_ms is not None:
            return self.application_ms
        return self.timestamp_ms if self.checkpoint.is_latest else None

    @property
    def lacks_instant(self) -> bool:
        """True for LATEST or AT_TIMESTAMP without the instant: a Java KCL wrote the checkpoint."""
        return self.checkpoint.is_at_instant and self.timestamp_ms is None

    @property
    def actual_owner(self) -> str | None:
        """The worker that may checkpoint."""
        return self.checkpoint_owner or self.owner

    @property
    def is_finished(self) -> bool:
        """True if the shard has ended and all its records are done."""
        return self.checkpoint.is_shard_end


def leases_by_stream(leases: Iterable[Lease]) -> dict[StreamIdentifier | None, list[Lease]]:
    """Return the leases of each stream, in order; None: those of an application's only stream."""
    found: defaultdict[StreamIdentifier | None, list[Lease]] = defaultdict(list)
    for lease in leases:
        found[lease.stream].append(lease)
    return dict(found)


def lease_key(stream: StreamIdentifier | None, shard_id: str) -> str:
    """Return the key of a shard's lease. None: the application reads a single stream."""
    return shard_id if stream is None else f"{stream}:{shard_id}"


def parse_lease_key(key: str) -> tuple[StreamIdentifier | None, str]:
    """Return the stream and the shard id of a lease; None: the application reads a single stream.

    Raises ValueError.
    """
    identifier, colon, shard_id = key.rpartition(":")
    return StreamIdentifier.parse(identifier) if colon else None, shard_id


def decode_lease(item: Mapping[str, Any]) -> Lease | None:
    """Read a row, as DynamoDB's API returns it; None for a row that is not a lease.

    Unknown attributes are ignored. As of KCL 3.5 the table also holds rows for coordination
    (``entityType`` LEADER, WORKER_METRIC_STATS, ...). A row without the attributes that every KCL
    writes (key, checkpoint, counter) is not a lease either.
    """
    if _text(item, "entityType") not in {None, "LEASE"}:
        return None
    key, sequence_number = _text(item, "leaseKey"), _text(item, "checkpoint")
    counter = _number(item, "leaseCounter")
    if key is None or sequence_number is None or counter is None:
        return None
    try:
        stream, shard_id = parse_lease_key(key)
    except ValueError:
        return None
    checkpoint = ExtendedSequenceNumber(
        sequence_number, _number(item, "checkpointSubSequenceNumber") or 0
    )
    return Lease(
        key=key,
        shard_id=shard_id,
        checkpoint=checkpoint,
        stream=stream,
        parent_ids=_texts(item, "parentShardId"),
        owner=_text(item, "leaseOwner"),
        counter=counter,
        owner_switches=_number(item, "ownerSwitchesSinceCheckpoint") or 0,
        pending=_pending(item),
        child_ids=_texts(item, "childShardIds"),
        hash_range=_hash_range(item),
        throughput_kbps=_throughput(item),
        checkpoint_owner=_text(item, "checkpointOwner"),
        timestamp_ms=_number(item, "checkpointTimestamp"),
        known=_known(item, checkpoint),
        application_ms=_instant(item, "applicationTimestamp"),
        made_ms=_instant(item, "leaseTimestamp"),
        stopped_by=_texts(item, "stoppedBy"),
        fencing_token=_token(item),
        mark=_mark(item),
    )


def renewed_lease(lease: Lease, item: Mapping[str, Any]) -> Lease | None:
    """Return a lease after a renewal, which changes counter and throughput; ``item``: its new row.

    None for a counter that is no whole number from 0 to 999,999,999,999,999, as it may be by hand.
    """
    counter = _text(item, "leaseCounter", "N")
    if counter is None or not (counter.isascii() and counter.isdecimal() and len(counter) < 16):
        return None
    return replace(lease, counter=int(counter), throughput_kbps=_throughput(item))


_ATTRIBUTES = {
    "counter": ("leaseCounter", "N"),
    "owner_switches": ("ownerSwitchesSinceCheckpoint", "N"),
    "owner": ("leaseOwner", "S"),
    "checkpoint_owner": ("checkpointOwner", "S"),
    "parent_ids": ("parentShardId", "SS"),
    "child_ids": ("childShardIds", "SS"),
    "stopped_by": ("stoppedBy", "SS"),
    "stream": ("streamName", "S"),
    "shard_id": ("shardId", "S"),
    "known": ("checkpointPosition", "S"),
    "timestamp_ms": ("checkpointTimestamp", "N"),
    "application_ms": ("applicationTimestamp", "N"),
    "made_ms": ("leaseTimestamp", "N"),
    "fencing_token": ("fencingToken", "N"),
    "mark": ("streamMark", "S"),
}
"""The attribute that holds a field of a lease, and its type."""


_PENDING = ("pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState")


def encode_field(field: str, value: Any) -> dict[str, AttributeValue | None]:
    """Return the attributes that hold a field of a lease; None: the row lacks the attribute."""
    if (one := _ATTRIBUTES.get(field)) is not None:
        name, kind = one
        if value is None or value == ():
            return {name: None}
        return {name: {kind: list(value) if kind == "SS" else str(value)}}
    if field == "hash_range":
        first, last = map(str, value)
        return {"startingHashKey": {"S": first}, "endingHashKey": {"S": last}}
    if field == "pending" and value is None:
        return dict.fromkeys(_PENDING)
    at = value.at if field == "pending" else value
    found = [{"S": at.sequence_number}, {"N": str(at.sub_sequence_number)}]
    if field == "checkpoint":
        return dict(zip(("checkpoint", "checkpointSubSequenceNumber"), found, strict=True))
    state = None if value.state is None else {"B": value.state}
    return dict(zip(_PENDING, [*found, state], strict=True))


def encode_lease(lease: Lease) -> dict[str, Any]:
    """Return the whole row of a new lease, as DynamoDB's API accepts it.

    Attributes without a value are left out: the table never holds an empty string or set.
    ``entityType`` is not written: KCLs before 3.5 do not know it, later ones do not need it.
    """
    fields = ["counter", "owner_switches", "checkpoint", "owner", "parent_ids", "child_ids"]
    if lease.hash_range is not None:
        fields.append("hash_range")
    if lease.stream is not None:
        fields += ["stream", "shard_id"]
    item: dict[str, Any] = {"leaseKey": {"S": lease.key}}
    for field in (*fields, "known", "timestamp_ms", "application_ms", "made_ms", "mark"):
        found = encode_field(field, getattr(lease, field))
        item.update(
            {name: value for name, value in found.items() if value not in (None, {"S": ""})}
        )
    return item


def _known(
    item: Mapping[str, Any], checkpoint: ExtendedSequenceNumber
) -> AfterRecord | AtTimestamp | None:
    """Return the arrival times in ``checkpointPosition``, if they are those of this checkpoint.

    A Java KCL, or an older version of this library, writes a checkpoint and leaves the attribute
    as it is; the attribute then belongs to another position.
    """
    try:
        position = parse_position(_text(item, "checkpointPosition") or "")
    except ValueError:
        return None
    if isinstance(position, AtTimestamp):
        return position if checkpoint.is_sentinel and not checkpoint.is_shard_end else None
    if isinstance(position, AfterRecord) and position.sequence_number == checkpoint.sequence_number:
        return position
    return None


def _instant(item: Mapping[str, Any], name: str) -> int | None:
    found = _number(item, name)
    return found if found is not None and 0 <= found < END_OF_TIME_MS else None


def _token(item: Mapping[str, Any]) -> int | None:
    found = _number(item, "fencingToken")
    return found if found is not None and 0 < found < MOST_TOKEN else None


def _mark(item: Mapping[str, Any]) -> StreamMark | None:
    try:
        return StreamMark.parse(_text(item, "streamMark") or "")
    except ValueError:
        return None


def _pending(item: Mapping[str, Any]) -> PendingCheckpoint | None:
    sequence_number = _text(item, "pendingCheckpoint")
    if sequence_number is None:
        return None
    sub = _number(item, "pendingCheckpointSubSequenceNumber") or 0
    # A Java KCL may write a number here when it creates a lease; the number means nothing.
    state = item.get("pendingCheckpointState", {}).get("B")
    return PendingCheckpoint(
        ExtendedSequenceNumber(sequence_number, sub),
        bytes(state) if isinstance(state, bytes | bytearray) else None,
    )


def _hash_range(item: Mapping[str, Any]) -> tuple[int, int] | None:
    keys = [_text(item, name) for name in ("startingHashKey", "endingHashKey")]
    # At most 39 digits, as in 2**128: Python refuses to convert thousands of digits.
    first, last = (int(key) if key and key.isdecimal() and len(key) < 40 else -1 for key in keys)
    return (first, last) if 0 <= first <= last <= MAX_HASH_KEY else None


def _throughput(item: Mapping[str, Any]) -> float | None:
    try:
        return float(_text(item, "throughputKBps", "N") or "")
    except ValueError:
        return None


def _number(item: Mapping[str, Any], name: str) -> int | None:
    try:
        return int(Decimal(_text(item, name, "N") or ""))
    except (ValueError, ArithmeticError):
        return None


def _texts(item: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(sorted(item.get(name, {}).get("SS", ())))


def _text(item: Mapping[str, Any], name: str, kind: str = "S") -> str | None:
    """Return an attribute of the type ``kind``; None if it is missing or of another type."""
    value = item.get(name, {}).get(kind)
    return value if isinstance(value, str) else None
