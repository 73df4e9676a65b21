"""Aggregates are told from all other data by their first bytes and their size."""

from __future__ import annotations

from sparkinesis.stream.kpl.magic import MAGIC, aggregates_of, is_aggregated
from sparkinesis.stream.page import Record

LONG = bytes(30)


def test_only_the_magic_bytes_before_something_make_an_aggregate() -> None:
    last = MAGIC[-1]
    data = [
        MAGIC + LONG,
        MAGIC + LONG[:17],
        MAGIC + LONG[:16],
        MAGIC[:-1] + bytes([last - 1]) + LONG,
        MAGIC[:-1] + bytes([last + 1]) + LONG,
        b"\xff" + LONG,
        b"text" + LONG,
        MAGIC[:3],
        b"",
    ]
    records = [Record(data=each, sequence_number="1") for each in data]
    assert aggregates_of(records) == records[:2]
    assert [is_aggregated(each) for each in data] == [True] * 2 + [False] * 7
