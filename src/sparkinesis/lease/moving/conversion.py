"""Converts a lease table between the rows of one stream and those of several.

`plan_conversion` says which rows get which keys. `convert` marks the rows first, then creates the
new ones, then deletes the old ones. While a row is marked, no worker starts, so that a conversion
that was cut short can be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from sparkinesis.errors import LeaseTableError, OptionError
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.rules.lease_start import last_known_position
from sparkinesis.lease.rules.reset_plan import require_recent, require_same_stream
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import CONVERTED_TO, read_row
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.reading.retention import is_of_another_stream
from sparkinesis.stream.shard import Lineage, Shard

_T = TypeVar("_T")

_AT_ONCE = 8
"""Rows that are written at the same time."""
_OF_OWNER = ("leaseOwner", "checkpointOwner")
_OF_STREAM = ("streamName", "shardId", "streamMark")
_MAY_DIFFER = {
    *_OF_OWNER,
    CONVERTED_TO,
    "leaseCounter",
    "ownerSwitchesSinceCheckpoint",
    "throughputKBps",
    "checkpointPosition",
    "fencingToken",
    "streamMark",
}
"""Attributes in which two rows of the same checkpoint may differ: a worker had one of them."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The leases of one stream that get other keys."""

    stream: StreamIdentifier
    to_several: bool
    """True for rows that are to name the stream; False for rows that are not to."""
    leases: tuple[Lease, ...] = ()
    """The rows to convert, parents before children."""

    @property
    def names(self) -> StreamIdentifier | None:
        """The stream that the new rows name."""
        return self.stream if self.to_several else None

    def new_key(self, lease: Lease) -> str:
        """Return the key of the row that takes the place of a lease's."""
        return lease_key(self.names, lease.shard_id)

    def new_item(self, item: Mapping[str, Any], lease: Lease) -> dict[str, Any]:
        """Return the new row for an item: all attributes but the owners, and those of the kind."""
        dropped = {*_OF_OWNER, *_OF_STREAM, CONVERTED_TO}
        new = {name: value for name, value in item.items() if name not in dropped}
        new["leaseKey"] = {"S": self.new_key(lease)}
        if self.names is not None:
            new["streamName"], new["shardId"] = {"S": str(self.stream)}, {"S": lease.shard_id}
        return new


def plan_conversion(
    leases: Iterable[Lease],
    stream: StreamIdentifier,
    shards: Iterable[Shard],
    created_ms: int,
    *,
    to_several: bool,
) -> Conversion:
    """Return the conversion of a table's leases.

    ``leases``: the rows of the other kind, of this stream or of none. ``shards`` and
    ``created_ms``: those of the stream, by the service.

    Raises `OptionError` if the leases are not of this stream.
    """
    rows = sorted(leases, key=lambda lease: lease.shard_id)
    lineage = Lineage.of(shards)
    require_same_stream(rows, lineage, None if to_several else stream)
    require_recent({lease.shard_id: lease for lease in rows}, lineage)
    for lease in rows:
        position = last_known_position(lease)
        if lease.mark is not None:
            mine = replace(lease.mark, account=stream.account, name=stream.name)
            is_other = not lease.mark.is_stream(replace(mine, created_ms=created_ms))
            if is_other:
                raise OptionError(
                    f"The lease {lease.key} is of stream {lease.mark.identifier}, and not of "
                    f"{stream}. Nothing was written. Check the names of the application and of the "
                    "stream."
                )
        elif position is not None and is_of_another_stream(position, created_ms):
            raise OptionError(
                f"The lease {lease.key} is older than the stream {stream}: it is one of a deleted "
                "stream of the same name. Nothing was written."
            )
    return Conversion(stream, to_several, tuple(rows))


def require_unmoved(before: Iterable[Lease], after: Iterable[Lease]) -> None:
    """Raise `LeaseTableError` if a lease changed between two scans: a worker runs."""
    counters = {lease.key: lease.counter for lease in before}
    moved = [row for row in after if counters.get(row.key) != row.counter]
    if moved:
        owner = moved[0].actual_owner
        by = f" by {owner}" if owner is not None else ""
        raise LeaseTableError(
            f"Workers of the application run: {', '.join(row.key for row in moved[:5])} "
            f"{'was' if len(moved) == 1 else 'were'} renewed or created{by}. Nothing was written. "
            "Stop all workers, and run the command again."
        )


def is_same(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if two rows mean the same, apart from their owners."""
    return _essence(item) == _essence(other)


def _essence(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {kind: set(found) if kind == "SS" else found for kind, found in value.items()}
        for name, value in item.items()
        if name not in _MAY_DIFFER
    }


def require_stopped(
    table: LeaseTable, leases: Iterable[Lease], seconds: float, wait: Callable[[float], object]
) -> None:
    """Raise `LeaseTableError` if a lease is renewed within ``seconds``: a worker runs.

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
    # Last, for rows of a conversion back: a table that is not whole must not seem so before.
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
