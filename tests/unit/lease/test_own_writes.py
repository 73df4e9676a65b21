"""Which counters a worker may have written itself."""

from __future__ import annotations

from dataclasses import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.own_writes import OwnWrites
from sparkinesis.lease.table import requests

ROW = Lease("s", "s", ExtendedSequenceNumber("LATEST"), counter=5)


def test_a_counter_is_ones_own_up_to_the_highest_that_was_written() -> None:
    own = OwnWrites()
    own.note([requests.take(ROW, "me")])
    own.note([requests.take(replace(ROW, counter=2), "me")])  # by an outdated look
    assert [own.may_have_made(replace(ROW, counter=n)) for n in (4, 6, 7)] == [True, True, False]


def test_a_lease_that_was_never_written_is_anothers() -> None:
    own = OwnWrites()
    own.note([requests.take(ROW, "me")])
    assert not own.may_have_made(replace(ROW, key="t", counter=0))


def test_a_lease_that_is_gone_is_forgotten() -> None:
    own = OwnWrites()
    own.note([requests.take(replace(ROW, key=key), "me") for key in "st"])
    own.keep({"s"})
    assert own.may_have_made(ROW)
    assert not own.may_have_made(replace(ROW, key="t"))
