"""The rows of successive scans of a lease table, each read only as far as it has changed.

A worker scans its table every second or two, and of a row mostly the counter has changed, or
nothing. To read a thousand rows in full took a worker more CPU than their shards' calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sparkinesis.lease.lease import Lease, renewed_lease
from sparkinesis.lease.table.rows import BrokenLease, TableScan, read_row, scan_of

_Row: TypeAlias = Lease | BrokenLease | None


class KnownRows:
    """Reads the rows of one scan after the other. For one thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], _Row]] = {}
        """The rows of the last scan by their keys, as DynamoDB's API returns them and as read."""

    def read(self, items: Iterable[Mapping[str, Any]]) -> TableScan:
        """Read all rows of a table, as `read_rows` does. Rows that are missing are forgotten."""
        items = list(items)
        known = self._known
        self._known = {}
        rows = []
        for item in items:
            key = item.get("leaseKey", {}).get("S", "")
            row = _read(item, known.get(key))
            self._known[key] = item, row
            rows.append(row)
        return scan_of(items, rows)


def _read(item: Mapping[str, Any], before: tuple[Mapping[str, Any], _Row] | None) -> _Row:
    """Read a row, given the row of the same key and its meaning in the scan before."""
    if before is None:
        return read_row(item)
    known, row = before
    if item == known:
        return row
    if isinstance(row, Lease) and item.keys() == known.keys():
        changed = {name for name, value in item.items() if value != known[name]}
        if changed <= _RENEWED and (lease := renewed_lease(row, item)) is not None:
            return lease
    return read_row(item)


_RENEWED = {"leaseCounter", "throughputKBps"}
"""The attributes that a renewal changes."""
