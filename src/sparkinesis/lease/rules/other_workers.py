"""The other workers of a lease table: which may be a Java KCL, and which know no handoffs. Pure.

A KCL before 3.5 writes only attributes that this library writes, too. So every worker whose id was
not generated here may be a Java KCL, which must understand the rows.

A KCL before 3.0 continues to renew a lease that another worker requests, and never hands it over.
No attribute identifies these workers. But workers of this library and of a KCL 3.x write
``throughputKBps`` when they renew, and an older KCL leaves that attribute as it is. Only workers
that process records can be distinguished: before a shard has its first record, a KCL 3.x (tried
with 3.5.1) writes no rate either.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import TableScan

_OURS = re.compile(r".+-[0-9]+-[0-9a-f]{12}", re.DOTALL)
_UUID = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL | re.IGNORECASE)
"""A Java KCL's default worker id, or the end of it."""
_WRITERS = {"LEADER": "ownerName", "CLIENT_VERSION_MIGRATION": "mb"}
"""The attribute with the worker's id, by ``entityType``; in the stats of a worker it is the key."""
_RENEWALS = 3
"""The number of renewals in a failover time; the same in every KCL."""
_WITHOUT_RATE = 3
"""Renewals after a checkpoint, without ``throughputKBps``, that identify a legacy worker."""
_SAME_RATE = 5
"""Renewals after a checkpoint, with the same ``throughputKBps``, that identify one."""


def default_worker_id(host: str, pid: int, rng: random.Random) -> str:
    """Return a unique worker id with the host and the process of the worker."""
    return f"{host}-{pid}-{rng.getrandbits(48):012x}"


def is_default(worker_id: str) -> bool:
    """Return True for the form that `default_worker_id` generates; a UUID does not count."""
    return bool(_OURS.fullmatch(worker_id)) and not _UUID.fullmatch(worker_id)


def java_kcl_may_read(scan: TableScan, worker_id: str) -> bool:
    """Return True if a Java KCL may share the leases of this table, by one scan of it.

    ``worker_id``: this worker. A Java worker that owns no lease leaves no sign before 3.5.
    """
    unfinished = [lease for lease in scan.leases if not lease.is_finished]
    return (
        scan.has_entities
        or any(
            lease.lacks_instant or _may_be_java(lease.actual_owner, worker_id)
            for lease in unfinished
        )
        or any(_may_be_java(_writer(item), worker_id) for item in scan.coordination)
    )


def _writer(item: Mapping[str, Any]) -> str | None:
    """Return the worker that has written a row of coordination."""
    name = _WRITERS.get(item["entityType"].get("S"), "leaseKey")
    writer: str | None = item.get(name, {}).get("S")
    return writer


def _may_be_java(owner: str | None, worker_id: str) -> bool:
    return owner is not None and owner != worker_id and not is_default(owner)


class Tenure(msgspec.Struct, frozen=True):
    """The time during which one worker renews one lease."""

    worker: str | None
    """The worker that renews the lease; None if unknown."""
    owners: tuple[str | None, str | None]
    counter: int
    rate: float | None
    checkpoint: ExtendedSequenceNumber
    """The checkpoint when the worker acquired the lease, or changed the rate."""
    since: float | None = None
    """The time, by the observer's clock, at which the checkpoint was first seen to have moved."""
    moves: int = 0
    """Scans since then at which the counter had moved."""


class WorkerVersions(msgspec.Struct, frozen=True):
    """The workers that own leases now, by their support for handoffs."""

    tenures: Mapping[str, Tenure] = msgspec.field(default_factory=dict)
    """The tenures by lease key."""
    legacy: frozenset[str] = frozenset()
    """Workers that do not support handoffs."""
    modern: frozenset[str] = frozenset()
    """Workers that have changed a rate, and so are never legacy ones."""


def observe_renewals(
    known: WorkerVersions, leases: Iterable[Lease], now: float, failover_time: float
) -> WorkerVersions:
    """Return the workers' versions after one more scan of the table, at ``now`` (seconds).

    A worker that no longer owns a lease is forgotten.
    """
    rows = [lease for lease in leases if not lease.is_finished]
    tenures: dict[str, Tenure] = {}
    modern, legacy = set(known.modern), set(known.legacy)
    for row in rows:
        before = known.tenures.get(row.key)
        tenure = tenures[row.key] = _after(before, row, now)
        if tenure.worker is None:
            continue
        if before is not None and _is_same_worker(before, row) and before.rate != tenure.rate:
            modern.add(tenure.worker)
        elif _is_legacy(tenure, now, failover_time):
            legacy.add(tenure.worker)
    present = {name for row in rows for name in (row.owner, row.checkpoint_owner) if name}
    return WorkerVersions(
        tenures, frozenset((legacy - modern) & present), frozenset(modern & present)
    )


def _after(before: Tenure | None, row: Lease, now: float) -> Tenure:
    owners = (row.owner, row.checkpoint_owner)
    if before is None or not _is_same_worker(before, row):
        # A KCL before 3.0 leaves checkpointOwner in a lease that it takes: it may mean nothing.
        worker = row.owner if row.checkpoint_owner is None else None
        return Tenure(worker, owners, row.counter, row.throughput_kbps, row.checkpoint)
    if before.rate != row.throughput_kbps:
        return Tenure(before.worker, owners, row.counter, row.throughput_kbps, row.checkpoint)
    seen = replace(before, owners=owners, counter=row.counter)
    if before.since is not None:
        return replace(seen, moves=before.moves + (before.counter != row.counter))
    return seen if before.checkpoint == row.checkpoint else replace(seen, since=now)


def _is_same_worker(before: Tenure, row: Lease) -> bool:
    """Return True if the same worker renews the lease, requested by another one or not."""
    owner, checkpoint_owner = before.owners
    is_asked_for = checkpoint_owner is None and row.checkpoint_owner == owner is not None
    return is_asked_for or before.owners == (row.owner, row.checkpoint_owner)


def _is_legacy(tenure: Tenure, now: float, failover_time: float) -> bool:
    """Return True if the renewals since a checkpoint should have written another rate.

    Checkpoints move the counter too, so the time of that many renewals must have passed. A rate of
    0 proves nothing: it stays 0 while a worker processes records that it fetched long ago.
    """
    if tenure.since is None or tenure.rate == 0:
        return False
    renewals = _WITHOUT_RATE if tenure.rate is None else _SAME_RATE
    waited = now - tenure.since
    return tenure.moves >= renewals and waited >= renewals * failover_time / _RENEWALS
