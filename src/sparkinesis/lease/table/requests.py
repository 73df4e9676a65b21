"""Builds the conditional writes to a lease's row, with the condition and effect of each. Pure.

Conditions and effects are those of the KCL's ``DynamoDBLeaseRefresher`` and
``DynamoDBLeaseSerializer`` (3.x), with these additions: `reset`, `withdraw_handoff`,
`drop_pending`, the attributes that `sparkinesis.lease.lease` names, and the owners in the
conditions of an owner's writes. A lease that was deleted by hand and created again counts from 0,
so the counter alone could match although another worker owns the lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeAlias

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table.rows import CONVERTED_TO
from sparkinesis.stream.position import AfterRecord, AtTimestamp

AttributeValue: TypeAlias = Mapping[str, Any]

_NO_COUNTER = -1
"""A counter that no lease has: counters begin at 0 and only rise."""

_PENDING = ("pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState")


@dataclass(frozen=True, slots=True)
class Update:
    """An atomic write to one existing row.

    Attributes that the update does not name keep their values.
    """

    after: Lease
    """The row after the write, provided that it was up to date before."""
    expected: Mapping[str, AttributeValue | None]
    """The values that the row must have; None: must be absent. The row itself must exist."""
    set: Mapping[str, AttributeValue]
    add: Sequence[str] = ()
    """Numbers to raise by one."""
    remove: Sequence[str] = ()

    @property
    def key(self) -> str:
        return self.after.key

    def request(self, table: str) -> dict[str, Any]:
        """Return UpdateItem's arguments; the answer holds the new row, a refusal the old one."""
        values = {f":{name}": value for name, value in self.set.items()}
        clauses = []
        if self.set:
            clauses.append("SET " + ", ".join(f"{name} = :{name}" for name in self.set))
        if self.add:
            clauses.append("ADD " + ", ".join(f"{name} :one" for name in self.add))
            values[":one"] = _number(1)
        if self.remove:
            clauses.append("REMOVE " + ", ".join(self.remove))
        conditions = []
        for name, value in self.expected.items():
            if value is None:
                conditions.append(f"attribute_not_exists({name})")
            else:
                conditions.append(f"{name} = :known_{name}")
                values[f":known_{name}"] = value
        if not any(self.expected.values()):
            conditions.insert(0, "attribute_exists(leaseKey)")
        request = {
            "TableName": table,
            "Key": {"leaseKey": {"S": self.key}},
            "UpdateExpression": " ".join(clauses),
            "ConditionExpression": " AND ".join(conditions),
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return {**request, "ExpressionAttributeValues": values} if values else request

    def statement(self, table: str) -> dict[str, Any]:
        """Return the same write as a statement of BatchExecuteStatement (PartiQL).

        A number to raise is set to its next value, which the row's counter makes certain. So an
        update that raises a number, and does not expect the counter, has no statement.
        """
        changes = {**self.set, **self._raised()}
        # PartiQL's UPDATE creates no row: for a missing row, its condition fails.
        words = [f'UPDATE "{table}"', *(f"SET {name}=?" for name in changes)]
        words += [f"REMOVE {name}" for name in self.remove]
        parameters = [*changes.values(), {"S": self.key}]
        conditions = ["leaseKey=?"]
        for name, value in self.expected.items():
            if value is None:
                conditions.append(f"{name} IS MISSING")
            else:
                conditions.append(f"{name}=?")
                parameters.append(value)
        return {
            "Statement": f"{' '.join(words)} WHERE {' AND '.join(conditions)}",
            "Parameters": parameters,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _raised(self) -> dict[str, AttributeValue]:
        assert not self.add or "leaseCounter" in self.expected
        known = {"ownerSwitchesSinceCheckpoint": self.after.owner_switches}
        return {name: _number(known[name]) for name in self.add}


def renew(lease: Lease, known: AfterRecord | AtTimestamp | None = None) -> Update:
    """Return a renewal, which shows that the owner is alive.

    The write is refused if a handoff was requested that ``lease`` does not show yet. ``known``: new
    arrival times known at the checkpoint; None: nothing new.
    """
    changes: dict[str, AttributeValue] = {"leaseCounter": _number(lease.counter + 1)}
    after = replace(lease, counter=lease.counter + 1)
    if known is not None:
        changes["checkpointPosition"] = {"S": str(known)}
        after = replace(after, known=known)
    return Update(after, _as_known(lease), changes)


def with_throughput(update: Update, kbps: float) -> Update:
    """Return the same write, which also stores the owner's rate.

    Every write of an owner stores the rate: an owner that leaves it unchanged looks like a KCL
    before 3.0 (`sparkinesis.lease.rules.legacy_workers`).
    """
    rounded = Decimal(str(kbps)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return replace(
        update,
        after=replace(update.after, throughput_kbps=float(rounded)),
        set={**update.set, "throughputKBps": {"N": f"{rounded:f}"}},
    )


def take(lease: Lease, worker_id: str) -> Update:
    """Take a lease whose owner has died, or steal a lease, for this worker."""
    switches = _switches(lease, worker_id)
    return Update(
        _owned_by(lease, worker_id, switches),
        {"leaseCounter": _number(lease.counter)},
        {"leaseOwner": {"S": worker_id}, "leaseCounter": _number(lease.counter + 1)},
        switches,
        ("checkpointOwner",),
    )


def assign(lease: Lease, new_owner: str) -> Update:
    """Assign a lease to another worker; its owner does so at the end of a handoff."""
    switches = _switches(lease, new_owner)
    return Update(
        _owned_by(lease, new_owner, switches),
        _owners(lease),
        {"leaseOwner": {"S": new_owner}},
        ("leaseCounter", *switches),
        ("checkpointOwner",),
    )


def initiate_handoff(lease: Lease, new_owner: str) -> Update:
    """Request a lease: its owner stays ``checkpointOwner`` until it releases the lease."""
    if lease.owner is None or lease.checkpoint_owner is not None:
        raise ValueError(f"{lease.key} has no owner to ask, or was asked already")
    return Update(
        replace(lease, owner=new_owner, checkpoint_owner=lease.owner),
        _owners(lease),
        {"leaseOwner": {"S": new_owner}, "checkpointOwner": {"S": lease.owner}},
    )


def withdraw_handoff(lease: Lease) -> Update:
    """Withdraw the request for a lease: its ``checkpointOwner`` becomes the owner again."""
    if lease.checkpoint_owner is None:
        raise ValueError(f"{lease.key} was not asked for")
    return Update(
        replace(lease, owner=lease.checkpoint_owner, checkpoint_owner=None),
        _owners(lease),
        {"leaseOwner": {"S": lease.checkpoint_owner}},
        remove=("checkpointOwner",),
    )


def evict(lease: Lease) -> Update:
    """Release a lease; if a worker has requested it, that worker becomes its owner."""
    is_asked_for = lease.checkpoint_owner is not None
    return Update(
        replace(
            lease,
            owner=lease.owner if is_asked_for else None,
            checkpoint_owner=None,
            counter=lease.counter + 1,
        ),
        _owners(lease),
        {},
        ("leaseCounter",),
        ("checkpointOwner",) if is_asked_for else ("leaseOwner", "checkpointOwner"),
    )


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
    changes, removed = _place(at, timestamp_ms, known)
    application_ms, made_ms = lease.began_ms, lease.made_ms
    if moved_ms is not None:
        made_ms = moved_ms
        changes["leaseTimestamp"] = _number(moved_ms)
        if application_ms is None:
            application_ms = 0  # the row will no longer hold the application's first instant
    if application_ms is not None and application_ms != lease.application_ms:
        changes["applicationTimestamp"] = _number(application_ms)
    return Update(
        replace(
            lease,
            checkpoint=at,
            timestamp_ms=timestamp_ms,
            counter=lease.counter + 1,
            owner_switches=0,
            pending=None,
            known=known,
            application_ms=application_ms,
            made_ms=made_ms,
        ),
        _as_known(lease),
        {
            "leaseCounter": _number(lease.counter + 1),
            **changes,
            "ownerSwitchesSinceCheckpoint": _number(0),
        },
        remove=(*_PENDING, *removed),
    )


def fix_instant(lease: Lease, timestamp_ms: int) -> Update:
    """Store the instant of a sentinel checkpoint. A prepared checkpoint stays.

    A KCL wrote the checkpoint, maybe long ago, so the application's first instant is unknown.
    """
    changes, removed = _place(lease.checkpoint, timestamp_ms)
    application_ms = lease.application_ms
    if application_ms is None:
        application_ms = 0
        changes["applicationTimestamp"] = _number(0)
    return Update(
        replace(
            lease,
            timestamp_ms=timestamp_ms,
            counter=lease.counter + 1,
            known=None,
            application_ms=application_ms,
        ),
        _as_known(lease),
        {"leaseCounter": _number(lease.counter + 1), **changes},
        remove=removed,
    )


def prepare(lease: Lease, pending: PendingCheckpoint) -> Update:
    """Return the first phase of a two-phase checkpoint."""
    changes: dict[str, AttributeValue] = {
        "leaseCounter": _number(lease.counter + 1),
        "pendingCheckpoint": {"S": pending.at.sequence_number},
        "pendingCheckpointSubSequenceNumber": _number(pending.at.sub_sequence_number),
    }
    if pending.state is not None:
        changes["pendingCheckpointState"] = {"B": pending.state}
    return Update(
        replace(lease, pending=pending, counter=lease.counter + 1),
        _as_known(lease),
        changes,
        remove=() if pending.state is not None else ("pendingCheckpointState",),
    )


def drop_pending(lease: Lease) -> Update:
    """Remove a prepared checkpoint; the last checkpoint stays as it is."""
    return Update(
        replace(lease, pending=None, counter=lease.counter + 1),
        _as_known(lease),
        {"leaseCounter": _number(lease.counter + 1)},
        remove=_PENDING,
    )


def add_children(lease: Lease, child_ids: Sequence[str]) -> Update:
    """Store the children of an ended shard. Needs no ownership, as in the KCL."""
    children = tuple(sorted(set(child_ids)))
    if not children:
        raise ValueError(f"no children to add to {lease.key}")
    return Update(replace(lease, child_ids=children), {}, {"childShardIds": {"SS": list(children)}})


def add_hash_range(lease: Lease, hash_range: tuple[int, int]) -> Update:
    """Store the hash range in a lease whose KCL was too old to write it."""
    first, last = hash_range
    return Update(
        replace(lease, hash_range=hash_range),
        {},
        {"startingHashKey": {"S": str(first)}, "endingHashKey": {"S": str(last)}},
    )


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
    changes, removed = _place(at, timestamp_ms)
    application_ms, made_ms = lease.began_ms, lease.made_ms
    if at.is_latest:
        application_ms = timestamp_ms
    if began_ms is not None:
        application_ms = began_ms
    if application_ms is not None and application_ms != lease.application_ms:
        changes["applicationTimestamp"] = _number(application_ms)
    if now_ms is not None:
        made_ms = now_ms
        changes["leaseTimestamp"] = _number(now_ms)
    return Update(
        replace(
            lease,
            checkpoint=at,
            timestamp_ms=timestamp_ms,
            counter=lease.counter + 2,
            owner=None,
            checkpoint_owner=None,
            owner_switches=0,
            pending=None,
            known=None,
            application_ms=application_ms,
            made_ms=made_ms,
        ),
        {"leaseCounter": _number(lease.counter)},
        {
            "leaseCounter": _number(lease.counter + 2),
            **changes,
            "ownerSwitchesSinceCheckpoint": _number(0),
        },
        remove=("leaseOwner", "checkpointOwner", *_PENDING, *removed),
    )


def mark_converted(lease: Lease, new_key: str) -> Update:
    """Note that another row takes the place of this one. It ends the ownership of any worker.

    The counter rises by two, as in `reset`.
    """
    return Update(
        replace(lease, counter=lease.counter + 2, owner=None, checkpoint_owner=None),
        {"leaseCounter": _number(lease.counter)},
        {"leaseCounter": _number(lease.counter + 2), CONVERTED_TO: {"S": new_key}},
        remove=("leaseOwner", "checkpointOwner"),
    )


def keep_converted(lease: Lease) -> Update:
    """Remove the note of `mark_converted`: this row is to stay."""
    return Update(lease, {"leaseCounter": _number(lease.counter)}, {}, remove=(CONVERTED_TO,))


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
        {"leaseCounter": _number(_NO_COUNTER)},
        {"startingHashKey": {"S": str(lease.hash_range[0])}},
    )


def delete(lease: Lease, table: str) -> dict[str, Any]:
    """Return DeleteItem's arguments: the lease must still be finished, or else be unchanged."""
    name = "checkpoint" if lease.is_finished else "leaseCounter"
    value = {"S": lease.checkpoint.sequence_number} if lease.is_finished else _number(lease.counter)
    return {
        "TableName": table,
        "Key": {"leaseKey": {"S": lease.key}},
        "ConditionExpression": f"{name} = :known_{name}",
        "ExpressionAttributeValues": {f":known_{name}": value},
    }


def has_landed(update: Update, row: Lease) -> bool:
    """Return True if ``row`` shows that ``update``, whose answer was lost, took effect.

    A handoff may have been requested or withdrawn since: neither changes the counter.
    """
    return _fenced(update.after) == _fenced(row)


def _fenced(row: Lease) -> tuple[object, ...]:
    return (row.counter, row.actual_owner, row.checkpoint, row.pending)


def _as_known(lease: Lease) -> dict[str, AttributeValue | None]:
    return {"leaseCounter": _number(lease.counter), **_owners(lease)}


def _owners(lease: Lease) -> dict[str, AttributeValue | None]:
    owners = {"leaseOwner": lease.owner, "checkpointOwner": lease.checkpoint_owner}
    return {name: None if owner is None else {"S": owner} for name, owner in owners.items()}


def _owned_by(lease: Lease, new_owner: str, switches: tuple[str, ...]) -> Lease:
    """Return the lease after a change of its owner, with ``switches`` from `_switches`."""
    return replace(
        lease,
        owner=new_owner,
        checkpoint_owner=None,
        counter=lease.counter + 1,
        owner_switches=lease.owner_switches + len(switches),
    )


def _switches(lease: Lease, new_owner: str) -> tuple[str, ...]:
    """Return the attribute to raise if the shard gets another reader than before."""
    others = {lease.owner, lease.checkpoint_owner} - {None, new_owner}
    return ("ownerSwitchesSinceCheckpoint",) if others else ()


def _place(
    at: ExtendedSequenceNumber, timestamp_ms: int | None, known: AfterRecord | None = None
) -> tuple[dict[str, AttributeValue], tuple[str, ...]]:
    """Return the attributes of a checkpoint to set, and the names of those to remove."""
    changes: dict[str, AttributeValue] = {
        "checkpoint": {"S": at.sequence_number},
        "checkpointSubSequenceNumber": _number(at.sub_sequence_number),
    }
    removed = []
    if timestamp_ms is None:
        removed.append("checkpointTimestamp")
    else:
        changes["checkpointTimestamp"] = _number(timestamp_ms)
    if known is None:
        removed.append("checkpointPosition")
    else:
        changes["checkpointPosition"] = {"S": str(known)}
    return changes, tuple(removed)


def _number(value: int) -> AttributeValue:
    return {"N": str(value)}
