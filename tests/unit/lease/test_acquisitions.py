"""A row that the service refuses for good keeps no worker from the other leases."""

from __future__ import annotations

from typing import Any, cast

from sparkinesis.errors import ServiceError
from sparkinesis.events import Event, LeaseUnwritable, ignore
from sparkinesis.lease.acquisitions import Acquisitions
from sparkinesis.lease.assignment.moves import Move
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table.table import LeaseTable


class Table:
    """A table that refuses all writes, with this reason."""

    why = ""

    def try_write(self, update: Any) -> ServiceError:
        del update
        return ServiceError(self.why)


def test_a_refused_write_is_published_once_for_each_row_and_reason() -> None:
    told: list[Event] = []
    table = Table()
    acquisitions = Acquisitions(
        cast(LeaseTable, table), cast(LeaseRenewer, None), "me", lambda: 0.0, told.append
    )
    for key, table.why in (("a", "too large"), ("a", "too large"), ("b", "too large"), ("a", "no")):
        acquisitions.request(Lease(key, key, ExtendedSequenceNumber("5"), owner="other"))
    assert told == [
        LeaseUnwritable("a", "too large"),
        LeaseUnwritable("b", "too large"),
        LeaseUnwritable("a", "no"),
    ]
    assert acquisitions.is_in_doubt
    assert acquisitions.asked == {"a": "other", "b": "other"}


def test_a_leader_that_is_to_end_assigns_nothing_more() -> None:
    """Without a renewer, each write would fail."""
    acquisitions = Acquisitions(
        cast(LeaseTable, Table()), cast(LeaseRenewer, None), "me", lambda: 0.0, ignore
    )
    row = Lease("a", "a", ExtendedSequenceNumber("5"), owner="dead")
    assert acquisitions.assign([Move(row, "other")], {"a"}, lambda: True) == []
    assert acquisitions.assign([Move(row, "me")], {"a"}, lambda: True) == [row]
