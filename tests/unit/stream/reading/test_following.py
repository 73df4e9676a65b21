"""The order of shards and the end of a stream that is followed."""

from __future__ import annotations

import pytest

from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.stream.reading.following import ReadingOrder, cut_after, is_at_tip
from sparkinesis.stream.shard import Shard


def test_children_begin_after_all_their_listed_parents() -> None:
    order = ReadingOrder(
        [Shard("a"), Shard("b"), Shard("m", ("a", "b")), Shard("c", ("expired",)), Shard("x")]
    )
    assert order.begin() == ["a", "b", "c", "x"]
    assert order.begin() == []
    order.end("a", [Shard("m", ("a", "b"))])
    assert order.begin() == [], "the other parent of the merge has not ended"
    order.end("b", [])
    assert order.begin() == ["m"]
    order.end("x", [Shard("y", ("x",)), Shard("z", ("x",))])
    assert order.begin() == ["y", "z"], "shards that the listing does not have yet"


def record(ms: int | None) -> Record:
    arrived = None if ms is None else ms / 1000
    return Record(data=b"", sequence_number="1", approximate_arrival_timestamp=arrived)


def test_records_after_an_instant_are_cut_off() -> None:
    records = [record(1000), record(2000), record(3000)]
    assert cut_after(records, 2000) == (records[:2], True)
    assert cut_after(records, 3000) == (records, False)
    assert cut_after(records, 999) == ([], True)
    assert cut_after(records, None) == (records, False)
    assert cut_after([record(None)], 5) == ([record(None)], False)


@pytest.mark.parametrize(
    ("count", "behind", "expected"),
    [(0, 0, True), (1, 0, True), (0, None, True), (1, None, False), (0, 5, False), (1, 5, False)],
)
def test_the_tip(count: int, behind: int | None, expected: bool) -> None:
    page = Page(records=[record(1)] * count, millis_behind_latest=behind)
    assert is_at_tip(Fetched(page, 0, 0)) is expected
