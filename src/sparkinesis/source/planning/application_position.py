"""The positions of a KCL application in a stream, from its leases. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from msgspec.structs import replace

from sparkinesis.errors import LeaseTableError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    parse_position,
)
from sparkinesis.stream.shard import Lineage

_INSTEAD = "Or set the option initialPosition to trim_horizon, latest or an instant."
_MOST_NAMED = 10
"""The most streams or shards to name in a message; a table may have leases of a thousand."""


def leases_of_stream(
    address: StreamAddress,
    leases: Iterable[Lease],
    table: TableAddress,
    *,
    present: StreamIdentifier | None = None,
    alone: bool = True,
) -> dict[str, Lease]:
    """Return the leases of one stream, by shard id. Raises `LeaseTableError` if there are none.

    ``present``: the stream as it is now; None if the service does not return its creation time, or
    if no lease names a stream. Leases of a deleted stream of the same name are left out; where the
    table has no others of that name, nothing is returned: see `former_stream`.

    ``alone``: the query reads no other stream. A lease without a stream identifier belongs to an
    application that reads one stream, and does not name it.
    """
    leases = list(leases)
    named = [lease for lease in leases if lease.stream and _is_of(lease.stream, address, present)]
    if named:
        identifier = _the_only(named, address, table) if present is None else present
        own = {lease.shard_id: lease for lease in named if lease.stream == identifier}
        if not own and _newest(named).creation_epoch > identifier.creation_epoch:
            raise LeaseTableError(
                f"The {table} holds leases of stream {_newest(named)}, which was created at "
                f"{_instant(_newest(named))}, and none of {address}, which was created before, at "
                f"{_instant(identifier)}: the application reads a stream of that name in another "
                f"region. Check the option region, and the application's name in the option "
                f"initialPosition. {_INSTEAD}"
            )
        return own
    plain = {lease.shard_id: lease for lease in leases if lease.stream is None}
    if plain and not alone:
        raise LeaseTableError(
            f"The {table} belongs to an application that reads one stream, and does not name that "
            f"stream; the query reads {address.name!r} and others. Load a DataFrame for each "
            "stream and union them."
        )
    if plain:
        return plain
    others = {lease.stream for lease in leases if lease.stream}
    if others:
        raise LeaseTableError(
            f"The {table} holds no lease of {_described(address, present)}, only of "
            f"{_list(others, address)}. "
            f"Check the name of the application in the option initialPosition. {_INSTEAD}"
        )
    raise LeaseTableError(
        f"The {table} holds no leases: the application has not started reading yet, or the table "
        f"is not its lease table. Check its name in the option initialPosition. {_INSTEAD}"
    )


def with_streams(leases: Iterable[Lease]) -> list[Lease]:
    """Return leases that name their stream, also where the application reads only one.

    A row of a KCL among them names none: it belongs to the stream of the others. If no row of a
    table names the stream, all stay as they are.
    """
    leases = list(leases)
    marks = [lease.mark for lease in leases if lease.mark is not None]
    newest = max(marks, key=lambda mark: mark.created_ms, default=None)
    if newest is None:
        return leases
    return [
        lease
        if lease.stream is not None
        else replace(lease, stream=(lease.mark or newest).identifier)
        for lease in leases
    ]


def former_stream(
    address: StreamAddress, leases: Iterable[Lease], table: TableAddress, present: StreamIdentifier
) -> tuple[str, bool]:
    """Describe a stream that was deleted and created anew, if only its leases have its name.

    Returns what happened, for an error or a warning; and True if a shard of the deleted stream was
    not finished: its unread records are lost.

    ``present``: the stream as it is now. It has no checkpoints, whatever the ids of its shards are.
    """
    named = [lease for lease in leases if lease.stream and _is_of(lease.stream, address, present)]
    newest = _newest(named)
    unread = sorted(one.shard_id for one in named if one.stream == newest and not one.is_finished)
    text = (
        f"{address} was created at {_instant(present)} ({present}). The {table} holds leases of "
        f"{newest}, created at {_instant(newest)}, and none of the present stream: it was deleted "
        "and made anew, and the application has no checkpoint in it."
    )
    if unread:
        text += (
            f" The records of the deleted stream that the application had not processed (of "
            f"{listed(unread, _MOST_NAMED)}) are lost."
        )
    return text, bool(unread)


def resume(
    leases: Mapping[str, Lease],
    lineage: Lineage,
    now_ms: int,
    *,
    address: StreamAddress,
    table: TableAddress,
) -> dict[str, Position]:
    """Return the position of every shard from which the query resumes; `walk` adds the children.

    By the KCL's rules a checkpoint LATEST was never advanced, and means ``now_ms`` (the service's
    clock); children of an unfinished shard wait for that shard. A shard without a lease, and
    without a leased ancestor or descendant, was never read: the query reads it from its start.
    Leases of shards that are no longer listed stay, unless nothing of them can be missing, so that
    their loss is reported like any other. Raises `LeaseTableError`.
    """
    if not any(shard_id in lineage.shards for shard_id in leases):
        raise LeaseTableError(
            f"The {table} holds leases of {', '.join(sorted(leases))}, but {address} has none of "
            "these shards: the application reads another stream, or was stopped for longer than "
            "the stream keeps records. Check the application's name in the option initialPosition "
            f"and the stream's name in streamName. {_INSTEAD}"
        )
    timeless = sorted(
        s for s, lease in leases.items() if lease.lacks_instant and not lease.checkpoint.is_latest
    )
    if timeless:
        raise LeaseTableError(
            f"The {table} holds no position of the application in {', '.join(timeless)} of "
            f"{address}: the application started at an instant, which a lease does not store, and "
            "has not checkpointed these shards yet. Let it checkpoint once in every shard, or set "
            "the option initialPosition to that instant."
        )
    positions = {
        shard_id: _position(lease, now_ms, table)
        for shard_id, lease in leases.items()
        if shard_id in lineage.shards or not (lease.is_finished or lease.checkpoint.is_latest)
    }
    unfinished = {shard for shard, position in positions.items() if position is not SHARD_END}
    # The KCL creates the leases of children before their parent's last record is checkpointed.
    for shard_id in lineage.descendants(unfinished & lineage.shards.keys()):
        if positions.get(shard_id) is TRIM_HORIZON:
            del positions[shard_id]
    unread = set(lineage.shards) - set(positions) - lineage.ancestors(positions)
    related = unread | set(positions)
    never_read = [s for s in unread if not related & set(lineage.shards[s].parents)]
    return {**positions, **dict.fromkeys(never_read, TRIM_HORIZON)}


def _is_of(
    stream: StreamIdentifier, address: StreamAddress, present: StreamIdentifier | None
) -> bool:
    """Return True for a stream of this name and account, whenever it was created."""
    account = stream.account
    if present is not None:
        account = present.account
    elif address.account is not None:
        account = address.account
    return (stream.name, stream.account) == (address.name, account)


def _the_only(
    leases: Sequence[Lease], address: StreamAddress, table: TableAddress
) -> StreamIdentifier:
    """Return the newest stream of a name, whose present creation time is not known."""
    accounts = sorted({lease.stream.account for lease in leases if lease.stream})
    if len(accounts) > 1:
        raise LeaseTableError(
            f"The {table} holds leases of streams {address.name!r} in the accounts "
            f"{' and '.join(accounts)}. Name the stream by its ARN: use the option streamARN "
            "instead of streamName."
        )
    return _newest(leases)


def _newest(leases: Iterable[Lease]) -> StreamIdentifier:
    streams = (lease.stream for lease in leases if lease.stream)
    return max(streams, key=lambda stream: stream.creation_epoch)


def _instant(stream: StreamIdentifier) -> str:
    try:
        return datetime.fromtimestamp(stream.creation_epoch, timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):  # somebody has made up the epoch
        return f"{stream.creation_epoch} (epoch seconds)"


def _described(address: StreamAddress, present: StreamIdentifier | None) -> str:
    if present is None or address.account is not None:
        return f"{address}"
    return f"{address} (account {present.account})"


def _list(streams: Iterable[StreamIdentifier], address: StreamAddress) -> str:
    """Return the names of streams; with the account for one that has the name of ``address``."""
    names = {
        f"{one.name!r} of account {one.account}"
        if one.name == address.name
        # The other names distinguish the streams well enough.
        else repr(one.name)
        for one in streams
    }
    return listed(sorted(names), _MOST_NAMED)


def _position(lease: Lease, now_ms: int, table: TableAddress) -> Position:
    try:
        position = lease.position()
        if isinstance(position, AfterRecord):
            # Drop arrival times: an offset holds only those of the query's own records.
            place = parse_position(str(lease.checkpoint))
            if not isinstance(place, AfterRecord) or place.is_before:
                raise ValueError
            return place
    except ValueError:
        at = lease.checkpoint
        raise LeaseTableError(
            f"The {table} has the checkpoint {at.sequence_number[:80]!r} (sub-sequence number "
            f"{at.sub_sequence_number}) in its lease {lease.key!r}, which no KCL writes. "
            f"Repair or delete that lease. {_INSTEAD}"
        ) from None
    return AtTimestamp(now_ms) if position is LATEST or position is None else position
