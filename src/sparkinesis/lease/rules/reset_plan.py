"""The plan of an application reset: the leases that change, and their order. Pure."""

# The application runs on while it is reset, and the command may be killed between two writes. So
# the order decides what a crash leaves, and each write ends the ownership of a live worker:
#
# - At LATEST, open shards resume with new records first; closed shards are finished after that. A
#   crash in between leaves no shard without a reader.
# - At an older position, parents come first: a child waits for parents that have leases.
# - A closed shard without a lease gets one as finished, if a parent has a lease, and before that
#   parent is finished. Without it, a worker found that its finished parents named a child without a
#   lease, made the lease at the oldest record, and read the shard beside its own children.
# - The counter rises by two (`requests.reset`): after a rise by one, a live Java owner takes the
#   reset for a write of its own whose answer was lost, and goes on.
# - An instant becomes a record's position before it is written (`at_checkpoint`). A lease at
#   AT_TIMESTAMP makes a Java KCL that is not configured to begin at an instant throw for ever, and
#   LATEST means another moment there at each start. It costs a few calls for each shard.
#
# An owner may write to a row between the plan and its reset. The step is then planned anew for the
# row as it is (`retried`). Only a shard that has ended meanwhile is left alone.

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from sparkinesis.errors import InconsistentShardsError, OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.rules.shard_sync import by_birth, require_tiling
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AtTimestamp,
    InitialPosition,
)
from sparkinesis.stream.shard import Lineage, Shard

_END = ExtendedSequenceNumber.of(SHARD_END)


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """A checkpoint in one shard: everything up to it is done."""

    shard_id: str
    at: ExtendedSequenceNumber


@dataclass(frozen=True, slots=True)
class LeaseReset:
    """One step of a reset: creates a lease, or resets the existing one."""

    key: str
    at: ExtendedSequenceNumber
    timestamp_ms: int | None = None
    """The requested instant (epoch ms), if any; `at_checkpoint` replaces it by a record."""
    create: Lease | None = None
    """The new lease; None if one exists."""
    lease: Lease | None = None
    """The last known row to reset; None if no row exists."""
    child_ids: tuple[str, ...] = ()
    """The child ids to add to the row before its reset to SHARD_END."""
    note: str = ""
    """A note for the operator."""
    now_ms: int | None = None
    """The service's clock at the time of the plan."""
    is_from_now: bool = False
    """True if ``at`` is a record found for LATEST: older records are not to be read again."""

    @property
    def row(self) -> Lease:
        """The new lease, or the last known row; neither its shard nor its stream ever changes."""
        row = self.create or self.lease
        assert row is not None
        return row

    @property
    def written_ms(self) -> int | None:
        """The instant to store; None unless ``at`` is a sentinel that needs an instant."""
        return self.timestamp_ms if self.at.is_at_instant else None

    @property
    def began_ms(self) -> int | None:
        """The application's first instant after a reset to LATEST."""
        return self.timestamp_ms if self.is_latest else None

    @property
    def is_latest(self) -> bool:
        return self.is_from_now or self.at.is_latest


def plan_reset(
    leases: Iterable[Lease],
    shards: Iterable[Shard],
    to: InitialPosition | ShardCheckpoint,
    now_ms: int,
    stream: StreamIdentifier | None = None,
) -> list[LeaseReset]:
    """Return the steps that move an application in one stream, in the order to write them.

    ``leases``: those of the stream. ``shards``: all that ListShards returns; ``now_ms``: the
    service's clock before that call. ``stream``: one of several streams of the application; None:
    its only one.

    - LATEST: open shards resume with new records, then closed shards are finished, also those that
      lack a lease which their parents have.
    - TRIM_HORIZON, or an instant: every listed shard starts there, parents first: a child waits
      for parents that have leases.
    - A checkpoint in one shard: only that lease changes.

    Raises OptionError (an instant in the future, an invalid position, an unknown shard, leases of
    another stream) and InconsistentShardsError (the open shards do not tile the hash keys, or the
    listing is older than a lease).
    """
    lineage = Lineage.of(shards)
    leased = {lease.shard_id: lease for lease in leases}
    require_same_stream(leased.values(), lineage, stream)
    if isinstance(to, ShardCheckpoint):
        return [_of_stream(_move_one(to, leased, lineage, now_ms), stream)]
    if isinstance(to, AtTimestamp) and to.ms > now_ms:
        raise OptionError(
            f"{to} is in the future: the service's clock shows {now_ms}. To resume with new "
            "records, use LATEST."
        )
    require_tiling(shard for shard in lineage.shards.values() if shard.is_open)
    require_recent(leased, lineage)
    listed = by_birth(lineage.shards.values())
    if to is LATEST:
        begin, done = [s for s in listed if s.is_open], [s for s in listed if not s.is_open]
    else:
        begin, done = listed, []
    moves = [
        *_expired(leased, lineage),
        *(_begin(shard, to, now_ms, leased.get(shard.id)) for shard in begin),
        *_passed(done, leased, lineage, now_ms),
        *(
            _finish(lease, lineage)
            for shard in done
            if (lease := leased.get(shard.id)) and not _is_done(lease, lineage)
        ),
    ]
    return [_of_stream(replace(move, now_ms=now_ms), stream) for move in moves]


def require_one_stream(to: InitialPosition | ShardCheckpoint, streams: int) -> None:
    """Raise `OptionError` for a position in one shard, if several streams are to be moved."""
    if isinstance(to, ShardCheckpoint) and streams > 1:
        raise OptionError(
            f"{to.shard_id}={to.at} is a position in one stream, and the table has leases of "
            f"{streams}: name the stream, too (--stream)."
        )


def _of_stream(move: LeaseReset, stream: StreamIdentifier | None) -> LeaseReset:
    """Return the step for a lease of one of several streams; None: of the only one."""
    if move.create is None:
        return move
    new = move.create.in_stream(stream)
    return replace(move, key=new.key, create=new)


def at_checkpoint(move: LeaseReset, at: ExtendedSequenceNumber) -> LeaseReset:
    """Return the same step with the checkpoint that was found for its instant."""
    return replace(
        move,
        at=at,
        create=move.create
        and msgspec.structs.replace(move.create, checkpoint=at, timestamp_ms=None),
        is_from_now=move.at.is_latest,
    )


def retried(move: LeaseReset, row: Lease | None) -> LeaseReset | None:
    """Return the step to write instead of ``move``, which met ``row``; None: no step is needed.

    ``row`` is None if it was deleted. A shard that was finished meanwhile is left as it is if none
    of its records were to be read again.
    """
    if row is not None:
        at_end = move.at.is_shard_end and set(move.child_ids) <= set(row.child_ids)
        ends_later = move.is_latest and move.lease and not move.lease.is_finished
        if row.is_finished and (at_end or ends_later):
            return None
        return replace(move, lease=row, create=None)
    if move.at.is_shard_end:
        return None
    if move.lease is None:
        return move
    new = Lease(
        key=move.key,
        shard_id=move.lease.shard_id,
        stream=move.lease.stream,
        checkpoint=move.at,
        parent_ids=move.lease.parent_ids,
        hash_range=move.lease.hash_range,
        timestamp_ms=move.written_ms,
        application_ms=move.began_ms if move.is_latest else move.lease.began_ms,
        made_ms=move.now_ms,
    )
    return replace(move, lease=None, create=new)


def require_same_stream(
    leases: Iterable[Lease], lineage: Lineage, stream: StreamIdentifier | None = None
) -> None:
    """Raise OptionError for leases of other streams.

    Shards of all streams have the same ids. Their hash ranges, which never change, differ unless
    the streams were resharded alike, so this finds most mistakes, but not all.
    """
    for lease in leases:
        if lease.stream != stream:
            mine = f"{stream}" if stream else "the application's only stream"
            raise OptionError(f"The lease {lease.key} is not one of {mine}.")
        shard = lineage.shards.get(lease.shard_id)
        if shard is None or None in {lease.hash_range, shard.hash_range}:
            continue
        if lease.hash_range != shard.hash_range:
            raise OptionError(
                f"The lease {lease.key} is not of this stream: its shard has the hash keys "
                f"{lease.hash_range}, and {shard.id} of the stream has {shard.hash_range}. "
                "Check the names of the application and of the stream."
            )


def require_recent(leased: Mapping[str, Lease], lineage: Lineage) -> None:
    """Raise InconsistentShardsError for a listing that lacks newer shards that have leases.

    The listing is stale, or the leases were read after a reshard. These shards have not expired.
    """
    late = sorted(shard_id for shard_id in leased if lineage.is_behind(shard_id))
    if late:
        raise InconsistentShardsError(
            f"There are leases of {', '.join(late)}, which are newer than all listed shards; the "
            f"newest listed shard is {max(lineage.shards)}. The stream may be resharding: try "
            "again later. If the stream was deleted and created again, the lease table belongs to "
            "the old stream: delete the table."
        )


def _begin(shard: Shard, at: InitialPosition, now_ms: int, lease: Lease | None) -> LeaseReset:
    new = new_lease(shard, at, now_ms, made_ms=now_ms)
    if at is LATEST:
        new = msgspec.structs.replace(new, application_ms=now_ms)
    create = new if lease is None else None
    key = lease.key if lease else new.key
    return LeaseReset(key, new.checkpoint, new.timestamp_ms, create, lease)


def _passed(
    done: Iterable[Shard], leased: Collection[str], lineage: Lineage, now_ms: int
) -> Iterator[LeaseReset]:
    """Yield steps that create the leases that closed shards lack, as finished.

    ``done``: parents first. Only where a parent has a lease: that will be finished, and a
    worker that finds its child without a lease would take the child for one that is still to be
    read.
    """
    there = set(leased)
    for shard in done:
        if shard.id not in there and there.intersection(shard.parents):
            there.add(shard.id)
            new = msgspec.structs.replace(
                new_lease(shard, TRIM_HORIZON, made_ms=now_ms),
                checkpoint=_END,
                child_ids=lineage.children(shard.id),
            )
            yield LeaseReset(new.key, _END, create=new)


def _finish(lease: Lease, lineage: Lineage, note: str = "") -> LeaseReset:
    return LeaseReset(
        lease.key, _END, lease=lease, child_ids=lineage.children(lease.shard_id), note=note
    )


def _is_done(lease: Lease, lineage: Lineage) -> bool:
    return lease.is_finished and set(lineage.children(lease.shard_id)) <= set(lease.child_ids)


def _expired(leased: Mapping[str, Lease], lineage: Lineage) -> list[LeaseReset]:
    """Return steps for leases of shards that the service no longer keeps."""
    return [
        _finish(
            lease,
            lineage,
            f"{shard_id} is no longer listed: its unread records after {lease.checkpoint} are "
            "lost.",
        )
        for shard_id, lease in sorted(leased.items())
        if shard_id not in lineage.shards and not lease.is_finished
    ]


def _move_one(
    to: ShardCheckpoint, leased: Mapping[str, Lease], lineage: Lineage, now_ms: int
) -> LeaseReset:
    sequence_number, sub = to.at.sequence_number, to.at.sub_sequence_number
    if not (sequence_number.isascii() and sequence_number.isdecimal()) or sub < 0:
        raise OptionError(
            f"{to.at} is not a position in {to.shard_id}: it must be a record's sequence number "
            "(digits) and a sub-sequence number from 0."
        )
    shard, lease = lineage.shards.get(to.shard_id), leased.get(to.shard_id)
    if shard is None:
        raise OptionError(
            f"{to.shard_id} is not a shard of the stream, or has expired with its records. Check "
            "the shard id."
        )
    if lease is None:
        create = msgspec.structs.replace(
            new_lease(shard, TRIM_HORIZON, made_ms=now_ms), checkpoint=to.at
        )
        note = f"{shard.id} had no lease."
        return LeaseReset(create.key, to.at, create=create, note=note, now_ms=now_ms)
    begun = [child for child in lineage.children(shard.id) if child in leased]
    note = ""
    if lease.is_finished and begun:
        note = (
            f"{shard.id} was finished. Its children {', '.join(begun)} may be read at the same "
            "time."
        )
    return LeaseReset(lease.key, to.at, lease=lease, note=note, now_ms=now_ms)
