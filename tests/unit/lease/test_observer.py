"""Rows that cannot be read are published once, and again when they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sparkinesis.events import Event, LeaseReadable, LeaseUnreadable
from sparkinesis.lease.observer import TableObserver
from sparkinesis.lease.table.rows import BrokenLease, TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import OwnWrites

TABLE = "lease table 'app'"


class Table:
    """A table in which these rows, by key and reason, cannot be read."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}

    def scan(self, **_: Any) -> TableScan:
        return TableScan(broken=tuple(BrokenLease(key, why) for key, why in self.broken.items()))

    def __str__(self) -> str:
        return TABLE


def test_an_unreadable_row_is_published_once_and_again_when_it_is_readable() -> None:
    told: list[Event] = []
    table = Table()
    observer = TableObserver(
        cast(LeaseTable, table),
        "me",
        OwnWrites(),
        failover_time=10.0,
        several_streams=False,
        publish=told.append,
    )
    found: Sequence[dict[str, str]] = [
        {"a": "no counter", "b": "no counter"},
        {"a": "no counter", "b": "no counter"},
        {"a": "no checkpoint", "b": "no counter"},
        {"b": "no counter"},
        {"b": "no counter"},
        {"a": "no checkpoint", "b": "no counter"},
    ]
    for table.broken in found:
        observer.scan(consistent=False)
    assert told == [
        LeaseUnreadable("a", TABLE, "no counter"),
        LeaseUnreadable("b", TABLE, "no counter"),
        LeaseUnreadable("a", TABLE, "no checkpoint"),
        LeaseReadable("a", TABLE),
        LeaseUnreadable("a", TABLE, "no checkpoint"),
    ]
