"""What a worker makes of rows that cannot be read, and of rows that name it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from sparkinesis.events import Event, LeaseReadable, LeaseUnreadable, Listener, ignore
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.observer import TableObserver
from sparkinesis.lease.table import requests
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


def observer_of(table: Table, own: OwnWrites, publish: Listener) -> TableObserver:
    return TableObserver(
        cast(LeaseTable, table),
        "me",
        own,
        failover_time=10.0,
        several_streams=False,
        publish=publish,
    )


def test_an_unreadable_row_is_published_once_and_again_when_it_is_readable() -> None:
    told: list[Event] = []
    table = Table()
    observer = observer_of(table, OwnWrites(), told.append)
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


def test_a_lease_that_moves_by_itself_is_another_process_of_this_id() -> None:
    own = OwnWrites()
    observer = observer_of(Table(), own, ignore)
    free = Lease("s", "s", ExtendedSequenceNumber("5"), counter=1)
    observer.observe([free], (), 100.0)
    given = requests.assign_vacant(free, "me").after
    assert not observer.is_renewed_by_duplicate(given), "it was another's when it was scanned"
    observer.observe([given], (), 101.0)
    assert observer.given([given]) == {"s"}
    assert not observer.is_renewed_by_duplicate(given)
    renewed = replace(given, counter=given.counter + 1)
    assert observer.is_renewed_by_duplicate(renewed), "since the last scan"
    observer.observe([renewed], (), 102.0)
    assert observer.is_renewed_by_duplicate(renewed), "before the last scan"
    again = requests.renew(renewed)
    own.add([again])
    observer.observe_some([again.after], {"s"}, 103.0)
    assert not observer.is_renewed_by_duplicate(again.after)
