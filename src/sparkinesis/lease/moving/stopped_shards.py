"""The shards that ``on_error`` has stopped on workers: finds them in the table, and restarts them.

A worker that stops a shard adds its id to the lease's ``stoppedBy`` as it releases the lease. An
operator restarts the shard by removing the attribute, or by deleting the lease, which the worker
sees in its next scan; a worker that takes the lease removes its own id. A KCL for Java leaves the
attribute as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError

_WRITES = 20
"""Tries of a write to a lease that workers stop again and again."""


def still_stopped(
    stopped: Mapping[str, int | None], leases: Iterable[Lease], worker_id: str
) -> dict[str, int | None]:
    """Return the lease keys of a worker's stopped shards that nobody has restarted by these leases.

    With the counter of each row in which the worker's id was seen first; None: not yet. A row with
    a lower counter is of an earlier time, since a scan may be late.
    """
    rows = {row.key: row for row in leases if row.key in stopped}
    left: dict[str, int | None] = {}
    for key, since in stopped.items():
        row = rows.get(key)
        if row is not None and worker_id in row.stopped_by:
            left[key] = row.counter if since is None else since
        elif since is None or (row is not None and row.counter < since):
            left[key] = since
    return left


def to_restart(leases: Sequence[Lease], shards: Sequence[str], table: str) -> list[Lease]:
    """Return the leases of the stopped shards that an operator names, by id or key; (): of all.

    ``table``: names the lease table in errors. Raises `OptionError` for a shard that has no lease
    or is not stopped, and if no shard is.
    """
    stopped = [lease for lease in leases if lease.stopped_by and not lease.is_finished]
    if not stopped:
        raise OptionError(f"No shard is stopped, by the {table}. Nothing was written.")
    found = {lease.key: lease for lease in stopped}
    if shards:
        found = {}
    for shard in shards:
        named = [lease for lease in stopped if shard in {lease.shard_id, lease.key}]
        if not named:
            is_there = any(shard in {lease.shard_id, lease.key} for lease in leases)
            why = "is not stopped" if is_there else "has no lease"
            keys = ", ".join(lease.key for lease in stopped[:5])
            raise OptionError(
                f"The shard {shard!r} {why}, by the {table}. Stopped are: {keys}. Nothing was "
                "written."
            )
        found |= {lease.key: lease for lease in named}
    return list(found.values())


def apply_restarts(table: LeaseTable, stopped: Sequence[Lease]) -> None:
    """Let all workers take these leases again. Raises the errors of the lease table.

    The owner of a lease, if there is one, is not disturbed: the write leaves owner and counter.
    """
    for lease in stopped:
        row: Lease | None = lease
        for _ in range(_WRITES):
            if row is None or not row.stopped_by:
                break
            try:
                table.write(requests.restart(row))
            except LeaseChangedError as changed:
                row = changed.row
            else:
                break
        else:
            raise SparkinesisError(
                f"{lease.shard_name} was stopped {_WRITES} times between a read and a write of its "
                f"lease in the {table}. Find out why its records fail before you restart it."
            )
