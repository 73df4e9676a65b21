"""Converts a lease table between the rows of one stream and those of several.

The rows are marked first, then the new ones are created, then the old ones are deleted. While a row
is marked, no worker starts, so that a conversion that was cut short can be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.moving.conversion import Conversion, is_same, require_unmoved
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import CONVERTED_TO, read_row
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError

_T = TypeVar("_T")

_AT_ONCE = 8
"""Rows that are written at the same time."""


def require_stopped(
    table: LeaseTable, leases: Iterable[Lease], seconds: float, wait: Callable[[float], object]
) -> None:
    """Raise `LeaseTableError` if a lease is renewed within so many seconds: a worker runs.

    ``leases``: by a scan a moment ago. Raises service errors.
    """
    wait(seconds)
    keys = {lease.key: lease for lease in leases}
    now = table.scan().leases
    require_unmoved(keys.values(), [row for row in now if row.key in keys])


def convert(table: LeaseTable, plan: Conversion) -> None:
    """Give the planned leases their new keys.

    Raises `LeaseTableError` for a row that a worker writes meanwhile, or that exists in both kinds
    with two checkpoints, and service errors. Run it again then, once the cause is gone.
    """
    marked = _each(lambda lease: _mark(table, plan, lease), plan.leases)
    items = _items(table)
    _require_marked(items, marked, table)
    require_no_conflict(table, plan, items)
    _each(lambda lease: table.create_item(plan.new_item(items[lease.key], lease)), marked)
    _each(lambda lease: _delete(table, lease), marked)
    # At last, or a table would look whole that is not: the rows of a conversion back.
    _each(lambda row: table.write(requests.keep_converted(row)), _left_marked(plan, items))


def _items(table: LeaseTable) -> dict[str, Mapping[str, Any]]:
    return {item["leaseKey"]["S"]: item for item in table.items()}


def _mark(table: LeaseTable, plan: Conversion, lease: Lease) -> Lease:
    try:
        return table.write(requests.mark_converted(lease, plan.new_key(lease)))
    except LeaseChangedError as error:
        raise _running(lease.key, str(error)) from None


def _require_marked(
    items: Mapping[str, Mapping[str, Any]], marked: Iterable[Lease], table: LeaseTable
) -> None:
    for lease in marked:
        item = items.get(lease.key)
        row = read_row(item) if item is not None else None
        if item is None or not isinstance(row, Lease) or row.counter != lease.counter:
            raise _running(lease.key, f"It changed in the {table}.")


def require_no_conflict(
    table: LeaseTable, plan: Conversion, items: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Raise `LeaseTableError` if a new row is there, and is not what the old one becomes.

    ``items``: the table's rows by key, if the caller has them.
    """
    if items is None:
        items = _items(table)
    for lease in plan.leases:
        there, mine = items.get(plan.new_key(lease)), items.get(lease.key)
        if there is None or mine is None or is_same(there, plan.new_item(mine, lease)):
            continue
        raise LeaseTableError(
            f"The {table} has a lease twice, and the rows differ: {lease.key} is at "
            f"{mine['checkpoint']['S']}, and {plan.new_key(lease)} is at "
            f"{there['checkpoint']['S']}. Applications of both kinds were in use. Delete the row "
            "that is not to be used, and run the command again."
        )


def _delete(table: LeaseTable, lease: Lease) -> None:
    if not table.delete(lease) and table.get(lease.key) is not None:
        raise _running(lease.key, "Its row could not be deleted.")


def _left_marked(plan: Conversion, items: Mapping[str, Mapping[str, Any]]) -> list[Lease]:
    """Return the rows of the new kind that a conversion in the other direction has marked."""
    old = {lease.key for lease in plan.leases}
    marked = (key for key, item in items.items() if CONVERTED_TO in item and key not in old)
    rows = [read_row(items[key]) for key in marked]
    return [row for row in rows if isinstance(row, Lease) and row.stream == plan.names]


def _running(key: str, why: str) -> LeaseTableError:
    return LeaseTableError(
        f"The lease {key} was changed during the conversion: a worker runs. {why} No checkpoint is "
        "lost. Stop all workers, and run the command again."
    )


def _each(call: Callable[[_T], Any], rows: Iterable[_T]) -> list[Any]:
    with ThreadPoolExecutor(_AT_ONCE, "convert") as pool:
        return list(pool.map(call, rows))
