"""Builds the conditional writes to a lease's row, with the condition and effect of each. Pure.

Conditions and effects are those of the KCL's ``DynamoDBLeaseRefresher`` and
``DynamoDBLeaseSerializer`` (3.x), with these additions: `reset`, `make_anew`, `withdraw_handoff`,
removing a prepared checkpoint, the attributes that `sparkinesis.lease.lease` names, and the owners
in the conditions of an owner's writes. A lease that was deleted by hand and created again counts
from 0, so the counter alone could match although another worker owns the lease.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import (
    AttributeValue,
    Lease,
    PendingCheckpoint,
    encode_field,
)
from sparkinesis.lease.table.fencing import next_token
from sparkinesis.lease.table.rows import CONVERTED_TO
from sparkinesis.lease.table.update import Update
from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.position import AfterRecord, AtTimestamp

_NO_COUNTER = -1
"""A counter that no lease has: counters begin at 0 and only rise."""


def renew(lease: Lease, known: AfterRecord | AtTimestamp | None = None) -> Update:
    """Return a renewal, which shows that the owner is alive.

    The write is refused if a handoff was requested that ``lease`` does not show yet. ``known``: new
    arrival times known at the checkpoint; None: nothing new.
    """
    news: dict[str, Any] = {} if known is None else {"known": known}
    after = replace(lease, counter=lease.counter + 1, **news)
    # Not by `_update`: a worker of a thousand leases makes a few hundred of these a second.
    changes = {"leaseCounter": {"N": str(after.counter)}}
    if known is not None:
        changes["checkpointPosition"] = {"S": str(known)}
    return Update(after, _as_known(lease), changes)


def with_throughput(update: Update, kbps: float) -> Update:
    """Return the same write, which also stores the owner's rate.

    Every write of an owner stores the rate: an owner that leaves it unchanged looks like a KCL
    before 3.0 (`sparkinesis.lease.rules.other_workers`).
    """
    rounded = Decimal(str(kbps)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return replace(
        update,
        after=replace(update.after, throughput_kbps=float(rounded)),
        set={**update.set, "throughputKBps": {"N": f"{rounded:f}"}},
    )


def take(lease: Lease, worker_id: str, at_least: int = 1, mark: StreamMark | None = None) -> Update:
    """Take a lease whose owner has died, or that this worker was given, or steal a lease.

    Every acquisition is such a write, so it raises the fencing token: to ``at_least``, or to the
    next after the row's (`sparkinesis.lease.table.fencing`). A row that was deleted and made again
    may have the same counter, but then has another token. Nor does the counter show that a handoff
    was withdrawn, after which the lease is its owner's again; the owners do.

    ``mark``: the only stream of the application, for a row that names none.
    """
    token = lease.fencing_token
    known = {} if token is None else encode_field("fencing_token", token)
    # An owner that is missing is not expected: someone may have edited the row by hand.
    owners = {name: value for name, value in _owners(lease).items() if value is not None}
    expected = {**_counted(lease), **owners, **known}
    update = _pass_on(lease, worker_id, expected, add=("owner_switches",))
    after = replace(
        update.after,
        fencing_token=next_token(token, at_least, worker_id),
        mark=mark if lease.mark is None else lease.mark,
    )
    news: dict[str, AttributeValue] = {"fencingToken": {"N": str(after.fencing_token)}}
    if after.mark != lease.mark:
        news["streamMark"] = {"S": str(after.mark)}
    return replace(update, after=after, set={**update.set, **news})


def assign(lease: Lease, new_owner: str) -> Update:
    """Assign a lease to another worker; its owner does so at the end of a handoff."""
    return _pass_on(lease, new_owner, _owners(lease), add=("counter", "owner_switches"))


def assign_vacant(lease: Lease, new_owner: str) -> Update:
    """Return a leader's assignment of a lease that has no live owner.

    Expects the counter, too, unlike a write of the KCL: the owner may have renewed the lease since
    the leader saw it expired.
    """
    return _pass_on(lease, new_owner, _as_known(lease), add=("owner_switches",))


def initiate_handoff(lease: Lease, new_owner: str) -> Update:
    """Request a lease: its owner stays ``checkpointOwner`` until it releases the lease."""
    if lease.owner is None or lease.checkpoint_owner is not None:
        raise ValueError(f"{lease.key} has no owner to ask, or was asked already")
    return _update(lease, _owners(lease), owner=new_owner, checkpoint_owner=lease.owner)


def withdraw_handoff(lease: Lease) -> Update:
    """Withdraw the request for a lease: its ``checkpointOwner`` becomes the owner again."""
    if lease.checkpoint_owner is None:
        raise ValueError(f"{lease.key} was not asked for")
    return _update(lease, _owners(lease), owner=lease.checkpoint_owner, checkpoint_owner=None)


def evict(lease: Lease) -> Update:
    """Release a lease; if a worker has requested it, that worker becomes its owner.

    A finished lease goes to nobody: nothing is left to read, so nobody adopts it.
    """
    is_to_nobody = lease.checkpoint_owner is None or lease.is_finished
    owner = {"owner": None} if is_to_nobody else {}
    return _update(
        lease,
        _owners(lease),
        add=("counter",),
        counter=lease.counter + 1,
        **owner,
        checkpoint_owner=None,
    )


def release(lease: Lease, worker_id: str) -> Update:
    """Return the owner's release of a lease: to the worker that requested it, or to any worker.

    Expects the counter, too, unlike a write of the KCL. A release that reaches the table late could
    otherwise end a later acquisition by the same worker.
    """
    if lease.owner is None or lease.owner == worker_id or lease.is_finished:
        update = evict(lease)
    else:
        update = assign(lease, lease.owner)
    return replace(update, expected={**update.expected, **_counted(lease)})


def checkpoint(
    lease: Lease,
    at: ExtendedSequenceNumber,
    timestamp_ms: int | None = None,
    known: AfterRecord | None = None,
    moved_ms: int | None = None,
) -> Update:
    """Return a checkpoint: everything up to ``at`` is done. Removes a prepared checkpoint.

    ``known``: the record of ``at``, with its arrival time. ``moved_ms``: the present time, if the
    record processor moves its shard to another position.

    The application's first instant stays in the row. A row of an older version holds that instant
    only in its checkpoint at LATEST.
    """
    moved: dict[str, Any] = {}
    if moved_ms is not None:
        moved["made_ms"] = moved_ms
    if lease.application_ms is None:
        if lease.began_ms is not None:
            moved["application_ms"] = lease.began_ms
        elif moved_ms is not None:
            moved["application_ms"] = 0  # the row will no longer hold the first instant
    return _update(
        lease,
        _as_known(lease),
        counter=lease.counter + 1,
        pending=None,
        checkpoint=at,
        timestamp_ms=timestamp_ms,
        known=known,
        **moved,
        owner_switches=0,
    )


def fix_instant(lease: Lease, timestamp_ms: int) -> Update:
    """Store the instant of a sentinel checkpoint. A prepared checkpoint stays.

    A KCL wrote the checkpoint, maybe long ago, so the application's first instant is unknown.
    """
    began: dict[str, Any] = {"application_ms": 0} if lease.application_ms is None else {}
    return _update(
        lease,
        _as_known(lease),
        counter=lease.counter + 1,
        checkpoint=lease.checkpoint,
        timestamp_ms=timestamp_ms,
        known=None,
        **began,
    )


def prepare(lease: Lease, pending: PendingCheckpoint | None) -> Update:
    """Return the first phase of a two-phase checkpoint; None: remove a prepared checkpoint.

    The last checkpoint stays as it is.
    """
    return _update(lease, _as_known(lease), counter=lease.counter + 1, pending=pending)


def with_stop(lease: Lease, release: Update, worker_id: str) -> Update:
    """Return the release of a lease which also shows that this worker has stopped the shard."""
    stopped_by = tuple(sorted({*release.after.stopped_by, worker_id}))
    return replace(
        release,
        after=replace(release.after, stopped_by=stopped_by),
        expected={**release.expected, **encode_field("stopped_by", lease.stopped_by)},
        set={**release.set, "stoppedBy": {"SS": list(stopped_by)}},
        remove=[name for name in release.remove if name != "stoppedBy"],
    )


def restart(lease: Lease) -> Update:
    """Let the workers that have stopped the shard take it again. Needs no ownership."""
    return _update(lease, encode_field("stopped_by", lease.stopped_by), stopped_by=())


def add_children(lease: Lease, child_ids: Iterable[str]) -> Update:
    """Store the children of an ended shard. Needs no ownership, as in the KCL."""
    children = tuple(sorted(set(child_ids)))
    if not children:
        raise ValueError(f"no children to add to {lease.key}")
    return _update(lease, {}, child_ids=children)


def add_hash_range(lease: Lease, hash_range: tuple[int, int]) -> Update:
    """Store the hash range in a lease whose KCL was too old to write it."""
    return _update(lease, {}, hash_range=hash_range)


def reset(
    lease: Lease,
    at: ExtendedSequenceNumber,
    timestamp_ms: int | None = None,
    now_ms: int | None = None,
    began_ms: int | None = None,
) -> Update:
    """Return an operator's reset of a lease to ``at``. It ends the ownership of any worker.

    ``now_ms``: the service's clock. ``began_ms``: the application's first instant from now on;
    default: the instant of LATEST, if ``at`` is LATEST.

    The counter rises by two: after a rise by one, a live Java owner would mistake the reset for its
    own write whose answer was lost.
    """
    if began_ms is None:
        began_ms = timestamp_ms if at.is_latest else lease.began_ms
    moved: dict[str, Any] = {"application_ms": began_ms}
    if began_ms is None or began_ms == lease.application_ms:
        # No news for the row, which keeps what it has.
        moved.clear()
    if now_ms is not None:
        moved["made_ms"] = now_ms
    return _update(
        lease,
        _counted(lease),
        counter=lease.counter + 2,
        owner=None,
        checkpoint_owner=None,
        pending=None,
        checkpoint=at,
        timestamp_ms=timestamp_ms,
        known=None,
        **moved,
        owner_switches=0,
    )


def make_anew(lease: Lease, new: Lease) -> Update:
    """Make a row of a former stream one of the stream that has the name now.

    It ends the ownership of any worker; the counter rises by two, as in `reset`. ``new``: the lease
    of the shard of that id in the new stream, which has a hash range.
    """
    return _update(
        lease,
        _counted(lease),
        counter=lease.counter + 2,
        owner=None,
        checkpoint_owner=None,
        pending=None,
        checkpoint=new.checkpoint,
        timestamp_ms=new.timestamp_ms,
        known=new.known,
        application_ms=new.application_ms,
        made_ms=new.made_ms,
        parent_ids=new.parent_ids,
        child_ids=(),
        hash_range=new.hash_range,
        stopped_by=(),
        owner_switches=0,
        mark=new.mark,
    )


def mark_converted(lease: Lease, new_key: str) -> Update:
    """Mark that another row takes the place of this one. It ends the ownership of any worker.

    The counter rises by two, as in `reset`.
    """
    ended = _update(
        lease, _counted(lease), counter=lease.counter + 2, owner=None, checkpoint_owner=None
    )
    return replace(ended, set={**ended.set, CONVERTED_TO: {"S": new_key}})


def keep_converted(lease: Lease) -> Update:
    """Remove the mark of `mark_converted`: this row is to stay."""
    return Update(lease, _counted(lease), {}, remove=(CONVERTED_TO,))


def probe(lease: Lease) -> Update | None:
    """Return a write that the server must refuse; None if the lease's hash range is unknown.

    It tests whether a server checks conditions: it expects a counter that no lease has. If the
    server executes it, nothing changes: it sets the first hash key, which never changes, to its
    present value.
    """
    if lease.hash_range is None:
        return None
    return Update(
        replace(lease, counter=_NO_COUNTER),
        encode_field("counter", _NO_COUNTER),
        {"startingHashKey": {"S": str(lease.hash_range[0])}},
    )


def delete(lease: Lease, table: str) -> dict[str, Any]:
    """Return DeleteItem's arguments: the lease must still be finished, or else be unchanged."""
    name, value = "leaseCounter", encode_field("counter", lease.counter)["leaseCounter"]
    if lease.is_finished:
        name, value = "checkpoint", {"S": lease.checkpoint.sequence_number}
    return {
        "TableName": table,
        "Key": {"leaseKey": {"S": lease.key}},
        "ConditionExpression": f"{name} = :known_{name}",
        "ExpressionAttributeValues": {f":known_{name}": value},
    }


def _update(
    lease: Lease,
    expected: Mapping[str, AttributeValue | None],
    *,
    add: Container[str] = (),
    **changes: Any,
) -> Update:
    """Return the write that changes these fields of a lease; ``add``: those raised by one."""
    found: dict[str, AttributeValue] = {}
    raised, removed = [], []
    for field, value in changes.items():
        for name, content in encode_field(field, value).items():
            if content is None:
                removed.append(name)
            elif field in add:
                raised.append(name)
            else:
                found[name] = content
    return Update(replace(lease, **changes), expected, found, raised, removed)


def _as_known(lease: Lease) -> dict[str, AttributeValue | None]:
    return {**_counted(lease), **_owners(lease)}


def _counted(lease: Lease) -> dict[str, AttributeValue | None]:
    return {"leaseCounter": {"N": str(lease.counter)}}


def _owners(lease: Lease) -> dict[str, AttributeValue | None]:
    owners = {"leaseOwner": lease.owner, "checkpointOwner": lease.checkpoint_owner}
    return {name: None if owner is None else {"S": owner} for name, owner in owners.items()}


def _pass_on(
    lease: Lease,
    new_owner: str,
    expected: Mapping[str, AttributeValue | None],
    *,
    add: Container[str],
) -> Update:
    changes: dict[str, Any] = {"owner": new_owner, "counter": lease.counter + 1}
    if new_owner in lease.stopped_by:
        # A process of the same id has stopped the shard, or its program has restarted the shard.
        expected = {**expected, **encode_field("stopped_by", lease.stopped_by)}
        changes["stopped_by"] = tuple(one for one in lease.stopped_by if one != new_owner)
    if {lease.owner, lease.checkpoint_owner} - {None, new_owner}:
        # The shard gets another reader than before.
        changes["owner_switches"] = lease.owner_switches + 1
    return _update(lease, expected, add=add, **changes, checkpoint_owner=None)
