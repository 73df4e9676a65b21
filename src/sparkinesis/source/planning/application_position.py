"""The positions of a KCL application in a stream, from its leases. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.address import TableAddress
from sparkinesis.stream.address import StreamAddress
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


def leases_of_stream(
    address: StreamAddress, leases: Iterable[Lease], table: TableAddress, *, alone: bool = True
) -> dict[str, Lease]:
    """Return the leases of one stream, by shard id. Raises `LeaseTableError` if there are none.

    ``alone``: the query reads no other stream. A lease without a stream identifier belongs to an
    application that reads one stream, and does not name it.
    """
    of_stream = [lease for lease in leases if lease.stream and _is_of(lease, address)]
    if of_stream:
        accounts = {lease.stream.account for lease in of_stream if lease.stream}
        if len(accounts) > 1:
            raise LeaseTableError(
                f"The {table} holds leases of streams {address.name!r} in the accounts "
                f"{' and '.join(sorted(accounts))}. Name the stream by its ARN: use the option "
                "streamARN instead of streamName."
            )
        # The table may still hold leases of a deleted stream of the same name.
        newest = max(lease.stream.creation_epoch for lease in of_stream if lease.stream)
        return {
            lease.shard_id: lease
            for lease in of_stream
            if lease.stream and lease.stream.creation_epoch == newest
        }
    plain = {lease.shard_id: lease for lease in leases if lease.stream is None}
    if plain and not alone:
        raise LeaseTableError(
            f"The {table} belongs to an application that reads one stream, and does not name that "
            f"stream; the query reads {address.name!r} and others. Load a DataFrame for each "
            "stream and union them."
        )
    if plain:
        return plain
    others = sorted({lease.stream.name for lease in leases if lease.stream})
    if others:
        raise LeaseTableError(
            f"The {table} holds no lease of {address}, only of {', '.join(map(repr, others))}. "
            f"Check the name of the application in the option initialPosition. {_INSTEAD}"
        )
    raise LeaseTableError(
        f"The {table} holds no leases: the application has not started reading yet, or the table "
        f"is not its lease table. Check its name in the option initialPosition. {_INSTEAD}"
    )


def resume(
    leases: Mapping[str, Lease],
    lineage: Lineage,
    now_ms: int,
    *,
    address: StreamAddress,
    table: TableAddress,
) -> dict[str, Position]:
    """Return the position of every shard from which the query resumes; `plan` adds the children.

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


def _is_of(lease: Lease, address: StreamAddress) -> bool:
    assert lease.stream is not None
    # arn:aws:kinesis:<region>:<account>:stream/<name>
    account = address.arn.split(":")[4] if address.arn else lease.stream.account
    return (lease.stream.name, lease.stream.account) == (address.name, account)


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
