"""Restarts the shards that ``on_error`` has stopped, while their application runs.

The owner of a lease, if there is one, goes on undisturbed: the write leaves owner and counter.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError

_WRITES = 20
"""Tries of a write to a lease that workers stop again and again."""


def apply_restarts(table: LeaseTable, stopped: Sequence[Lease]) -> None:
    """Let all workers take these leases again. Raises the errors of the lease table."""
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
