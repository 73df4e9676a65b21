"""The lease tables that were deleted while this process used them, which it never creates again.

An application without leases begins at its initial position, by default at the latest record. If a
worker created the table again, it would silently skip all records that are still to be processed.
"""

from __future__ import annotations

from sparkinesis.errors import LeaseTableNotFoundError
from sparkinesis.lease.table.address import TableAddress

_vanished: set[tuple[str, str | None, str | None]] = set()
"""Name, region and endpoint of each. One operation on a set is atomic, so it needs no lock."""


def note_vanished(table: TableAddress) -> LeaseTableNotFoundError:
    """Note for the rest of this process that the table was deleted; return the error to raise."""
    _vanished.add(_place(table))
    return LeaseTableNotFoundError(
        f"The {table} was deleted while this process used it. This process does not create it "
        "again: the application would begin anew at its initial position (by default at the latest "
        "record) and skip the records that are not processed yet. Restore the table from a backup "
        "under the same name: workers that still run resume at its checkpoints. Or, to begin anew, "
        "stop all workers and start new processes."
    )


def require_not_vanished(table: TableAddress) -> None:
    """Raise `LeaseTableNotFoundError` if the table was deleted while this process used it."""
    if _place(table) in _vanished:
        raise note_vanished(table)


def _place(table: TableAddress) -> tuple[str, str | None, str | None]:
    return table.name, table.region, table.endpoint
