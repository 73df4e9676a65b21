"""Moving an application to another place while it runs: which leases change, and in what order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sparkinesis.errors import InconsistentShardsError, OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.rules.shard_sync import by_birth, require_tiling
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
    """A place in one shard: all up to it is done."""

    shard_id: str
    at: ExtendedSequenceNumber


@dataclass(frozen=True, slots=True)
class LeaseReset:
    """One step: create the lease, or reset the one that exists."""

    key: str
    at: ExtendedSequenceNumber
    timestamp_ms: int | None = None
    """The instant (epoch ms) that was asked for, if any; `at_checkpoint` puts a record there."""
    create: Lease | None = None
    """The new lease, at that place; None where there is one."""
    lease: Lease | None = None
    """The row to reset, as it was known; None where there is none."""
    child_ids: tuple[str, ...] = ()
    """To be added to the row before it is reset to SHARD_END, if it does not have them."""
    note: str = ""
    """What the operator should know."""
    now_ms: int | None = None
    """The service's clock when the step was planned."""
    is_from_now: bool = False
    """Whether ``at`` was found for LATEST: nothing that arrived before is to be read again."""

    @property
    def written_ms(self) -> int | None:
        """The instant to write: beside a name that needs one, and not beside a record's place."""
        return self.timestamp_ms if self.at.is_at_instant else None

    @property
    def began_ms(self) -> int | None:
        """The application's first instant from then on, where it is moved to LATEST."""
        return self.timestamp_ms if self.is_latest else None

    @property
    def is_latest(self) -> bool:
        return self.is_from_now or self.at.is_latest


def plan_reset(
    leases: Iterable[Lease],
    shards: Iterable[Shard],
    to: InitialPosition | ShardCheckpoint,
    now_ms: int,
) -> list[LeaseReset]:
    """The steps that move an application, in the order to make them.

    ``shards``: all that ListShards returns; ``now_ms``: the service's clock before that call.

    - LATEST: open shards go on with what arrives from now on, then closed ones are done. In this
      order: a crash on the way leaves no shard whose reader nobody starts.
    - TRIM_HORIZON, or an instant: every listed shard begins there, parents first: a child waits
      for parents that have leases.
    - A place in one shard: only that lease moves.

    Raises OptionError (an instant to come, a place that is none, an unknown shard, leases of other
    streams) and InconsistentShardsError (the open shards do not tile the hash keys, or the list is
    older than a lease).
    """
    lineage = Lineage.of(shards)
    leased = {lease.shard_id: lease for lease in leases}
    _require_same_stream(leased.values(), lineage)
    if isinstance(to, ShardCheckpoint):
        return [_move_one(to, leased, lineage, now_ms)]
    if isinstance(to, AtTimestamp) and to.ms > now_ms:
        raise OptionError(
            f"{to} is still to come: the service's clock shows {now_ms}. To go on with what "
            "arrives from now on, use LATEST."
        )
    require_tiling(shard for shard in lineage.shards.values() if shard.is_open)
    _require_recent(leased, lineage)
    listed = by_birth(lineage.shards.values())
    if to is LATEST:
        begin, done = [s for s in listed if s.is_open], [s for s in listed if not s.is_open]
    else:
        begin, done = listed, []
    moves = [
        *_expired(leased, lineage),
        *(_begin(shard, to, now_ms, leased.get(shard.id)) for shard in begin),
        *(
            _finish(lease, lineage)
            for shard in done
            if (lease := leased.get(shard.id)) and not _is_done(lease, lineage)
        ),
    ]
    return [replace(move, now_ms=now_ms) for move in moves]


def at_checkpoint(move: LeaseReset, at: ExtendedSequenceNumber) -> LeaseReset:
    """The same step to the place in the shard that its instant leads to."""
    return replace(
        move,
        at=at,
        create=move.create and replace(move.create, checkpoint=at, timestamp_ms=None),
        is_from_now=move.at.is_latest,
    )


def retried(move: LeaseReset, row: Lease | None) -> LeaseReset | None:
    """The step to make instead of ``move``, which met ``row`` as it is now; None: none is needed.

    ``row`` is None if there is none any more. A shard that was read to its end meanwhile is left
    alone where nothing of it was to be read again.
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
        checkpoint=move.at,
        parent_ids=move.lease.parent_ids,
        hash_range=move.lease.hash_range,
        timestamp_ms=move.written_ms,
        application_ms=move.began_ms if move.is_latest else move.lease.began_ms,
        made_ms=move.now_ms,
    )
    return replace(move, lease=None, create=new)


def _require_same_stream(leases: Iterable[Lease], lineage: Lineage) -> None:
    """Raise OptionError for a table of several streams, and for one of another stream.

    Shards of all streams have the same names. Their hash ranges, which never change, differ unless
    the streams were resharded alike; so this finds most mistakes, not all.
    """
    for lease in leases:
        if lease.stream is not None:
            raise OptionError(
                f"The lease {lease.key} is of an application that reads several streams; only one "
                "that reads a single stream can be moved."
            )
        shard = lineage.shards.get(lease.shard_id)
        if shard is None or None in {lease.hash_range, shard.hash_range}:
            continue
        if lease.hash_range != shard.hash_range:
            raise OptionError(
                f"The lease {lease.key} is not of this stream: its shard has the hash keys "
                f"{lease.hash_range}, and {shard.id} of the stream those of {shard.hash_range}. "
                "Check the names of the application and of the stream."
            )


def _require_recent(leased: Mapping[str, Lease], lineage: Lineage) -> None:
    """Raise InconsistentShardsError for a list that does not know shards of which there are leases.

    It is behind, or the leases were read after a reshard. What it leaves out has not expired.
    """
    late = sorted(shard_id for shard_id in leased if lineage.is_behind(shard_id))
    if late:
        raise InconsistentShardsError(
            f"There are leases of {', '.join(late)}, which came after all shards that ListShards "
            f"tells, of which {max(lineage.shards)} is the last. The stream may be resharding: ask "
            "again. If it was deleted, and another has its name now, the lease table is of the old "
            "one: delete the table."
        )


def _begin(shard: Shard, at: InitialPosition, now_ms: int, lease: Lease | None) -> LeaseReset:
    new = new_lease(shard, at, now_ms, made_ms=now_ms)
    if at is LATEST:
        new = replace(new, application_ms=now_ms)
    create = new if lease is None else None
    key = lease.key if lease else new.key
    return LeaseReset(key, new.checkpoint, new.timestamp_ms, create, lease)


def _finish(lease: Lease, lineage: Lineage, note: str = "") -> LeaseReset:
    return LeaseReset(
        lease.key, _END, lease=lease, child_ids=lineage.children(lease.shard_id), note=note
    )


def _is_done(lease: Lease, lineage: Lineage) -> bool:
    return lease.is_finished and set(lineage.children(lease.shard_id)) <= set(lease.child_ids)


def _expired(leased: Mapping[str, Lease], lineage: Lineage) -> list[LeaseReset]:
    """Leases of shards that the service does not keep any more: nothing of them can be read."""
    return [
        _finish(
            lease,
            lineage,
            f"{shard_id} is not listed any more: what was not read of it after "
            f"{lease.checkpoint} is gone.",
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
            f"{to.at} is not a place in {to.shard_id}: it must be a record's sequence number "
            "(digits) and a sub-sequence number from 0."
        )
    shard, lease = lineage.shards.get(to.shard_id), leased.get(to.shard_id)
    if shard is None:
        raise OptionError(
            f"{to.shard_id} is not a shard of the stream, or not any more: its records are gone."
        )
    if lease is None:
        create = replace(new_lease(shard, TRIM_HORIZON, made_ms=now_ms), checkpoint=to.at)
        note = f"{shard.id} had no lease."
        return LeaseReset(create.key, to.at, create=create, note=note, now_ms=now_ms)
    begun = sorted(child for child in lineage.children(shard.id) if child in leased)
    note = ""
    if lease.is_finished and begun:
        note = (
            f"{shard.id} had ended. {', '.join(begun)} came after it and may be read at the "
            "same time."
        )
    return LeaseReset(lease.key, to.at, lease=lease, note=note, now_ms=now_ms)
