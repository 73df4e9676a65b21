"""Problems with rows of the lease table are told once, and again when they change."""

from __future__ import annotations

from sparkinesis.errors import ServiceError
from sparkinesis.events import Event, LeaseReadable, LeaseUnreadable, LeaseUnwritable
from sparkinesis.lease.row_problems import RowProblems
from sparkinesis.lease.table.rows import BrokenLease

TABLE = "lease table 'app'"


def test_an_unreadable_row_is_told_once_and_told_when_it_is_readable_again() -> None:
    told: list[Event] = []
    problems = RowProblems(TABLE, told.append)
    for why in ("no counter", "no counter", "no checkpoint"):
        problems.report_broken([BrokenLease("a", why), BrokenLease("b", "no counter")])
    problems.report_broken([BrokenLease("b", "no counter")])
    problems.report_broken([BrokenLease("b", "no counter")])
    problems.report_broken([BrokenLease("a", "no checkpoint"), BrokenLease("b", "no counter")])
    assert told == [
        LeaseUnreadable("a", TABLE, "no counter"),
        LeaseUnreadable("b", TABLE, "no counter"),
        LeaseUnreadable("a", TABLE, "no checkpoint"),
        LeaseReadable("a", TABLE),
        LeaseUnreadable("a", TABLE, "no checkpoint"),
    ]


def test_a_refused_write_is_told_once_for_each_row_and_reason() -> None:
    told: list[Event] = []
    problems = RowProblems(TABLE, told.append)
    for key, why in (("a", "too large"), ("a", "too large"), ("b", "too large"), ("a", "no")):
        problems.report_refusal(key, ServiceError(why))
    assert told == [
        LeaseUnwritable("a", "too large"),
        LeaseUnwritable("b", "too large"),
        LeaseUnwritable("a", "no"),
    ]
