"""The conditional writes to a lease's row: what each demands of the row, and what it leaves. Pure.

Conditions and effects are those of the KCL's ``DynamoDBLeaseRefresher`` and
``DynamoDBLeaseSerializer`` (3.x). Ours are `reset`, `withdraw_handoff`, the attributes that
`sparkinesis.lease.lease` names, and that what an owner writes demands the owners that it knows
beside the counter: a lease that was deleted by hand and made anew counts from the start, and may be
another worker's at the very number that its old owner knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeAlias

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.stream.position import AfterRecord, AtTimestamp

AttributeValue: TypeAlias = Mapping[str, Any]

_NO_COUNTER = -1
"""Counters begin at 0, and are raised only."""

_PENDING = ("pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState")


@dataclass(frozen=True, slots=True)
class Update:
    """A write to one existing row, in one piece or not at all.

    Attributes that it does not name stay as they are, whoever wrote them.
    """

    after: Lease
    """The row that it leaves, if the row was as known before."""
    expected: Mapping[str, AttributeValue | None]
    """The attributes that the row must hold; None: must be absent. The row itself must exist."""
    set: Mapping[str, AttributeValue]
    add: Sequence[str] = ()
    """Numbers to raise by one."""
    remove: Sequence[str] = ()

    @property
    def key(self) -> str:
        return self.after.key

    def request(self, table: str) -> dict[str, Any]:
        """The arguments of UpdateItem. Its answer holds the whole row, a refusal the old one."""
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
        """The same as a statement of BatchExecuteStatement (PartiQL).

        Only of updates that set: PartiQL could not add to a number without knowing it.
        """
        assert not self.add
        # An UPDATE of PartiQL creates no row: that of a missing one fails its condition.
        words = [f'UPDATE "{table}"', *(f"SET {name}=?" for name in self.set)]
        words += [f"REMOVE {name}" for name in self.remove]
        parameters = [*self.set.values(), {"S": self.key}]
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


def renew(lease: Lease, known: AfterRecord | AtTimestamp | None = None) -> Update:
    """Show that the owner lives. Refused once somebody asked for the lease, until that is known.

    ``known``: what is known by now of arrival times at the checkpoint; None: nothing new.
    """
    changes: dict[str, AttributeValue] = {"leaseCounter": _number(lease.counter + 1)}
    after = replace(lease, counter=lease.counter + 1)
    if known is not None:
        changes["checkpointPosition"] = {"S": str(known)}
        after = replace(after, known=known)
    return Update(after, _as_known(lease), changes)


def with_throughput(update: Update, kbps: float) -> Update:
    """The same write, which tells the rate of its owner, too.

    Every owner's write does: an owner that leaves the rate alone is taken for a KCL before 3.0
    (`sparkinesis.lease.rules.legacy_workers`).
    """
    rounded = Decimal(str(kbps)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return replace(
        update,
        after=replace(update.after, throughput_kbps=float(rounded)),
        set={**update.set, "throughputKBps": {"N": f"{rounded:f}"}},
    )


def take(lease: Lease, worker_id: str) -> Update:
    """Make a lease, whose owner is gone or is stolen from, this worker's."""
    switches = _switches(lease, worker_id)
    return Update(
        replace(
            lease,
            owner=worker_id,
            checkpoint_owner=None,
            counter=lease.counter + 1,
            owner_switches=lease.owner_switches + len(switches),
        ),
        {"leaseCounter": _number(lease.counter)},
        {"leaseOwner": {"S": worker_id}, "leaseCounter": _number(lease.counter + 1)},
        switches,
        ("checkpointOwner",),
    )


def assign(lease: Lease, new_owner: str) -> Update:
    """Give a lease to another worker: what its owner does at the end of a handoff."""
    switches = _switches(lease, new_owner)
    return Update(
        replace(
            lease,
            owner=new_owner,
            checkpoint_owner=None,
            counter=lease.counter + 1,
            owner_switches=lease.owner_switches + len(switches),
        ),
        _owners(lease),
        {"leaseOwner": {"S": new_owner}},
        ("leaseCounter", *switches),
        ("checkpointOwner",),
    )


def initiate_handoff(lease: Lease, new_owner: str) -> Update:
    """Ask the owner for a lease: it goes on as ``checkpointOwner`` until it lets go."""
    if lease.owner is None or lease.checkpoint_owner is not None:
        raise ValueError(f"{lease.key} has no owner to ask, or was asked already")
    return Update(
        replace(lease, owner=new_owner, checkpoint_owner=lease.owner),
        _owners(lease),
        {"leaseOwner": {"S": new_owner}, "checkpointOwner": {"S": lease.owner}},
    )


def withdraw_handoff(lease: Lease) -> Update:
    """Ask for it no more: it is its ``checkpointOwner``'s again, who need not have noticed."""
    if lease.checkpoint_owner is None:
        raise ValueError(f"{lease.key} was not asked for")
    return Update(
        replace(lease, owner=lease.checkpoint_owner, checkpoint_owner=None),
        _owners(lease),
        {"leaseOwner": {"S": lease.checkpoint_owner}},
        remove=("checkpointOwner",),
    )


def evict(lease: Lease) -> Update:
    """Let go of a lease. One that was asked for goes to whoever asked."""
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
    """Everything up to ``at`` is done; what was prepared is settled by that.

    ``known``: the record of ``at``, with its arrival time. ``moved_ms``: now, where the record
    processor moves its shard.

    The application's first instant stays in the row: a row of an older version has it in its
    checkpoint at LATEST only.
    """
    changes, gone = _place(at, timestamp_ms, known)
    application_ms, made_ms = lease.began_ms, lease.made_ms
    if moved_ms is not None:
        made_ms = moved_ms
        changes["leaseTimestamp"] = _number(moved_ms)
        if application_ms is None:
            application_ms = 0  # the instant of the row will not be the application's
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
        remove=(*_PENDING, *gone),
    )


def fix_instant(lease: Lease, timestamp_ms: int) -> Update:
    """Store the instant of a sentinel checkpoint. A prepared checkpoint stays.

    A KCL wrote the checkpoint, maybe long ago: when the application began is not known.
    """
    changes, gone = _place(lease.checkpoint, timestamp_ms)
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
        remove=gone,
    )


def prepare(lease: Lease, pending: PendingCheckpoint) -> Update:
    """The first phase of a checkpoint in two."""
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
    """An operator's: begin at ``at``, whoever has the lease now.

    ``now_ms``: the service's clock. ``began_ms``: the application's first instant from now on; that
    of LATEST, where this is not given.

    The counter goes up by two. By one, a Java owner that lives would take it for its own write,
    whose answer was lost.
    """
    changes, gone = _place(at, timestamp_ms)
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
        remove=("leaseOwner", "checkpointOwner", *_PENDING, *gone),
    )


def probe(lease: Lease) -> Update | None:
    """A write that has to be refused, and changes nothing where it is not.

    For a server that may not heed conditions: the counter is one that no lease has, and what is set
    is the first hash key of the shard, to what it is. That never changes, whoever writes meanwhile.
    None where the lease's hash keys are not known.
    """
    if lease.hash_range is None:
        return None
    return Update(
        replace(lease, counter=_NO_COUNTER),
        {"leaseCounter": _number(_NO_COUNTER)},
        {"startingHashKey": {"S": str(lease.hash_range[0])}},
    )


def delete(lease: Lease, table: str) -> dict[str, Any]:
    """The arguments of DeleteItem: of a finished lease while it is finished, else as known."""
    name = "checkpoint" if lease.is_finished else "leaseCounter"
    value = {"S": lease.checkpoint.sequence_number} if lease.is_finished else _number(lease.counter)
    return {
        "TableName": table,
        "Key": {"leaseKey": {"S": lease.key}},
        "ConditionExpression": f"{name} = :known_{name}",
        "ExpressionAttributeValues": {f":known_{name}": value},
    }


def has_landed(update: Update, row: Lease) -> bool:
    """Return True if ``row`` is what ``update`` leaves. For updates whose answers were lost only.

    Since then, the lease may also have been asked for, or asked for no more, which leaves the
    counter alone.
    """
    return _fenced(update.after) == _fenced(row)


def _fenced(row: Lease) -> tuple[object, ...]:
    return (row.counter, row.actual_owner, row.checkpoint, row.pending)


def _as_known(lease: Lease) -> dict[str, AttributeValue | None]:
    return {"leaseCounter": _number(lease.counter), **_owners(lease)}


def _owners(lease: Lease) -> dict[str, AttributeValue | None]:
    owners = {"leaseOwner": lease.owner, "checkpointOwner": lease.checkpoint_owner}
    return {name: None if owner is None else {"S": owner} for name, owner in owners.items()}


def _switches(lease: Lease, new_owner: str) -> tuple[str, ...]:
    """The attribute to raise, if this makes another worker than before read the shard."""
    others = {lease.owner, lease.checkpoint_owner} - {None, new_owner}
    return ("ownerSwitchesSinceCheckpoint",) if others else ()


def _place(
    at: ExtendedSequenceNumber, timestamp_ms: int | None, known: AfterRecord | None = None
) -> tuple[dict[str, AttributeValue], tuple[str, ...]]:
    """The attributes of a checkpoint: those to set, and those that the new one does not have."""
    changes: dict[str, AttributeValue] = {
        "checkpoint": {"S": at.sequence_number},
        "checkpointSubSequenceNumber": _number(at.sub_sequence_number),
    }
    gone = []
    if timestamp_ms is None:
        gone.append("checkpointTimestamp")
    else:
        changes["checkpointTimestamp"] = _number(timestamp_ms)
    if known is None:
        gone.append("checkpointPosition")
    else:
        changes["checkpointPosition"] = {"S": str(known)}
    return changes, tuple(gone)


def _number(value: int) -> AttributeValue:
    return {"N": str(value)}
