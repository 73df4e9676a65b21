"""Signs that a Java KCL shares a lease table. Pure.

A KCL before 3.5 writes nothing into a lease that this library does not write, too. So an owner
whose worker id was not made here may be one: what is written must be understood by both then.
"""

from __future__ import annotations

from sparkinesis.lease.rules.worker_ids import is_default
from sparkinesis.lease.table.rows import TableScan


def java_kcl_may_read(scan: TableScan, worker_id: str) -> bool:
    """Whether a Java KCL may read the leases of this table, as far as a look at it tells.

    ``worker_id``: the worker that asks. A Java worker that owns no lease leaves no sign before 3.5.
    """
    unfinished = [lease for lease in scan.leases if not lease.is_finished]
    return scan.has_entities or any(
        lease.lacks_instant or _may_be_java(lease.actual_owner, worker_id) for lease in unfinished
    )


def _may_be_java(owner: str | None, worker_id: str) -> bool:
    return owner is not None and owner != worker_id and not is_default(owner)
