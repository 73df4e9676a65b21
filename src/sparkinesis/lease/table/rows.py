"""Reads the rows of a lease table, and detects rows with values that no KCL writes.

Usually, someone has edited the row by hand. The row is neither guessed at, nor ignored as if its
shard had no lease: the shard waits until the row is repaired, and every reader of the table reports
the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, decode_lease, renewed_lease
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import END_OF_TIME_MS

_SHARD_ID = re.compile(r"(?:.*:)?shardId-[0-9]+", re.DOTALL)
_SEQUENCE_NUMBER = re.compile(r"[0-9]{1,128}")
CONVERTED_TO = "convertedTo"
"""The attribute of a row that is being converted: the key of the row that takes its place."""
_LEASES = (None, {"S": "LEASE"})
"""``entityType`` of rows of leases; only a KCL 3.5 or later writes it."""
_BY_ANYONE = (
    None,
    {"S": "LEADER"},
    {"S": "CLIENT_VERSION_MIGRATION"},
    {"S": "WORKER_METRIC_STATS"},
)
"""``entityType`` of the rows that workers of this library write, too; those of leases have none."""
_RENEWED = {"leaseCounter", "throughputKBps"}
"""The attributes that a renewal changes."""
_MOST = 2**62
"""The bound of valid numbers: no counter gets there, and Java's ``long`` ends at 2**63."""


class BrokenLease(msgspec.Struct, frozen=True):
    """The key of a row that cannot be read as a lease, and the reason."""

    key: str
    why: str

    @property
    def is_single_stream(self) -> bool:
        """True if the application reads a single stream: the key names no stream."""
        return ":" not in self.key

    @property
    def shard_id(self) -> str:
        """The shard of the lease, by its key."""
        return self.key.rpartition(":")[2]

    @property
    def stream_id(self) -> str:
        """The stream's identifier, by the key; empty if the key names no stream."""
        return self.key.rpartition(":")[0]

    def __str__(self) -> str:
        return f"{self.key!r} ({self.why})"


class TableScan(msgspec.Struct, frozen=True):
    """The rows that one scan of a lease table returned."""

    leases: tuple[Lease, ...] = ()
    broken: tuple[BrokenLease, ...] = ()
    has_entities: bool = False
    """True if a row has an ``entityType`` that only a KCL 3.5 or later writes."""
    is_converting: bool = False
    """True if a conversion to rows of the other kind has begun, and has not ended."""
    coordination: tuple[Mapping[str, Any], ...] = ()
    """The rows of another ``entityType`` than LEASE, by which workers coordinate themselves, as
    DynamoDB's API returns them; `sparkinesis.lease.assignment.coordination` reads them."""
    second: int | None = None
    """The epoch second at which the server had read the rows, by its clock; None: unknown."""

    @property
    def single_stream(self) -> TableScan:
        """The rows without those of an application that reads several streams."""
        return self.of(None)

    @property
    def several_streams(self) -> TableScan:
        """The rows without those of an application that reads a single stream."""
        return msgspec.structs.replace(
            self,
            leases=tuple(one for one in self.leases if one.stream is not None),
            broken=tuple(one for one in self.broken if not one.is_single_stream),
        )

    def of(self, stream: StreamIdentifier | None) -> TableScan:
        """Return the rows of one of several streams; None: those that name no stream."""
        if stream is None:
            broken = (one for one in self.broken if one.is_single_stream)
        else:
            broken = (one for one in self.broken if one.key.startswith(f"{stream}:"))
        leases = (one for one in self.leases if one.stream == stream)
        return msgspec.structs.replace(self, leases=tuple(leases), broken=tuple(broken))


def read_rows(items: Iterable[Mapping[str, Any]]) -> TableScan:
    """Read all rows of a table, as DynamoDB's API returns them; skip rows that are not leases."""
    items = list(items)
    return scan_of(items, list(map(read_row, items)))


def scan_of(
    items: Iterable[Mapping[str, Any]], rows: Iterable[Lease | BrokenLease | None]
) -> TableScan:
    """Return the scan of a table, given its rows as DynamoDB's API returns them and as read."""
    items = list(items)
    leases: list[Lease] = []
    broken: list[BrokenLease] = []
    others: list[Mapping[str, Any]] = []
    for item, row in zip(items, rows, strict=True):
        if isinstance(row, Lease):
            leases.append(row)
        elif isinstance(row, BrokenLease):
            broken.append(row)
        else:
            others.append(item)
    if in_circles := circular_leases(leases):
        why = "its parents (parentShardId) form a circle, so that it would wait forever"
        broken += [BrokenLease(one.key, why) for one in leases if one.key in in_circles]
        leases = [one for one in leases if one.key not in in_circles]
    return TableScan(
        tuple(leases),
        tuple(broken),
        any(item.get("entityType") not in _BY_ANYONE for item in items),
        any(CONVERTED_TO in item for item in items),
        tuple(item for item in others if item.get("entityType") not in _LEASES),
    )


class KnownRows:
    """Reads the rows of successive scans, each row only as far as it has changed. For one thread.

    A worker scans its table every second or two, and of a row mostly the counter has changed, or
    nothing. To read a thousand rows in full took a worker more CPU than their shards' calls.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], Lease | BrokenLease | None]] = {}
        """The rows of the last scan by their keys, as DynamoDB's API returns them and as read."""

    def read(self, items: Iterable[Mapping[str, Any]]) -> TableScan:
        """Read all rows of a table, as `read_rows` does. Rows that are missing are forgotten."""
        items = list(items)
        known = self._known
        self._known = {}
        rows = []
        for item in items:
            key = item.get("leaseKey", {}).get("S", "")
            row = _read_changed(item, known.get(key))
            self._known[key] = item, row
            rows.append(row)
        return scan_of(items, rows)


def _read_changed(
    item: Mapping[str, Any], before: tuple[Mapping[str, Any], Lease | BrokenLease | None] | None
) -> Lease | BrokenLease | None:
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


def read_row(item: Mapping[str, Any]) -> Lease | BrokenLease | None:
    """Read one row; None for a row that is not a lease, such as one for coordination."""
    key, kind = _value(item, "leaseKey"), item.get("entityType", {"S": "LEASE"})
    why = next(_flaws(item), None)
    if why is None:
        return decode_lease(item)
    is_shards = isinstance(key, str) and bool(_SHARD_ID.fullmatch(key))
    return BrokenLease(key, why) if is_shards and kind == {"S": "LEASE"} else None


def _flaws(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the invalid values that reading the shard depends on; a write repairs all others."""
    for name, is_required in (("checkpoint", True), ("pendingCheckpoint", False)):
        if name not in item and not is_required:
            continue
        text = _value(item, name)
        if not isinstance(text, str) or not _is_place(text):
            yield f"{name} is {_told(item, name)}, and not a sequence number, LATEST, ..."
    for name, least, most in (
        ("leaseCounter", -_MOST, _MOST),
        ("checkpointSubSequenceNumber", 0, _MOST),
        ("pendingCheckpointSubSequenceNumber", 0, _MOST),
        ("ownerSwitchesSinceCheckpoint", -_MOST, _MOST),
        ("checkpointTimestamp", 0, END_OF_TIME_MS),
    ):
        if name not in item and name != "leaseCounter":
            continue
        number = _whole(_value(item, name, "N"))
        if number is None or not least <= number < most:
            yield f"{name} is {_told(item, name)}, and not a whole number in its bounds"
    if "parentShardId" in item and not isinstance(_value(item, "parentShardId", "SS"), list):
        yield f"parentShardId is {_told(item, 'parentShardId')}, and not a set of shard ids"


def _is_place(text: str) -> bool:
    return ExtendedSequenceNumber(text).is_sentinel or bool(_SEQUENCE_NUMBER.fullmatch(text))


def _whole(text: Any) -> int | None:
    try:
        number = Decimal(text)
        return int(number) if number == number.to_integral_value() else None
    except (ArithmeticError, TypeError, ValueError):
        return None


def _value(item: Mapping[str, Any], name: str, kind: str = "S") -> Any:
    return item.get(name, {}).get(kind)


def _told(item: Mapping[str, Any], name: str) -> str:
    if name not in item:
        return "missing"
    text = repr(dict(item[name]))
    return text if len(text) <= 80 else f"{text[:80]}..."


def circular_leases(leases: Iterable[Lease]) -> frozenset[str]:
    """Return the keys of unfinished leases in circles, where each waits for the next to end."""
    unfinished = {(one.stream, one.shard_id): one for one in leases if not one.is_finished}
    graph = {
        place: {(one.stream, parent) for parent in one.parent_ids} & unfinished.keys()
        for place, one in unfinished.items()
        if one.parent_ids
    }
    found: set[str] = set()
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            for place in error.args[1]:
                found.add(unfinished[place].key)
                graph.pop(place, None)
        else:
            return frozenset(found)
