"""Worker ids: generates them, and detects by them a Java KCL that may share a lease table. Pure.

A KCL before 3.5 writes only attributes that this library writes, too. So every worker whose id was
not generated here may be a Java KCL, which must understand the rows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from sparkinesis.lease.table.rows import TableScan

_OURS = re.compile(r".+-[0-9]+-[0-9a-f]{12}", re.DOTALL)
_UUID = re.compile(r".*[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.DOTALL | re.IGNORECASE)
"""A Java KCL's default worker id, or the end of it."""
_WRITERS = {"LEADER": "ownerName", "CLIENT_VERSION_MIGRATION": "mb"}
"""The attribute with the worker's id, by ``entityType``; in the stats of a worker it is the key."""


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
