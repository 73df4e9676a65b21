"""The first records of a cursor: what lies before its position is dropped, and told once."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading import early_records
from sparkinesis.stream.reading.early_records import EarlyRecordFilter, OutOfOrderError

ADDRESS = StreamAddress("s", None, "us-east-1", "http://127.0.0.1:1")
SHARD = "shardId-000000000000"


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_records, "_warned", set())


def begin(
    position: Position, *, inclusive: bool = False, at: StreamAddress = ADDRESS
) -> EarlyRecordFilter:
    return EarlyRecordFilter(at, SHARD, position, inclusive=inclusive)


def page(*records: Record) -> Fetched:
    return Fetched(Page(list(records), "next", 0), 100, 0)


def record(number: int, arrival_ms: int | None = 1_000_123) -> Record:
    arrival = None if arrival_ms is None else arrival_ms / 1000
    return Record(
        data=b"",
        partition_key="k",
        sequence_number=str(number),
        approximate_arrival_timestamp=arrival,
    )


def given_by(early: EarlyRecordFilter, fetched: Fetched) -> list[int]:
    return [int(one.sequence_number) for one in early.apply(fetched).page.records]


@pytest.mark.parametrize(
    ("position", "inclusive", "pages"),
    [
        (AfterRecord("100"), False, [((7, 8, 99), []), ((100, 101), [101])]),
        (AfterRecord("100"), True, [((7, 99), []), ((99, 100, 101), [100, 101])]),
        (AfterRecord("100", sub_sequence_number=3), False, [((99, 100, 101), [100, 101])]),
        (TRIM_HORIZON, False, [((1, 2, 3), [1, 2, 3]), ((1, 2), []), ((3, 4), [4])]),
        (AfterRecord("100"), False, [((500,), [500])]),
    ],
    ids=[
        "what lies at or before an exclusive start is dropped",
        "an inclusive start keeps its own record",
        "a start inside a record keeps that record",
        "a renewal that begins anew repeats nothing",
        "a gap behind the start is left to the retention check",
    ],
)
def test_what_is_given(
    position: Position, inclusive: bool, pages: list[tuple[tuple[int, ...], list[int]]]
) -> None:
    cut = begin(position, inclusive=inclusive)
    for sent, given_ in pages:
        assert given_by(cut, page(*map(record, sent))) == given_


@pytest.mark.parametrize("arrival_ms", [None, 1_000_000])
def test_a_record_that_may_have_arrived_since_the_instant_is_kept(arrival_ms: int | None) -> None:
    """Without an arrival time, or with one that may have been cut to its second."""
    assert given_by(begin(AtTimestamp(1_000_500)), page(record(1, arrival_ms))) == [1]


def test_a_page_that_begins_where_it_should_is_the_same_object() -> None:
    fetched = page(record(101), record(102))
    assert begin(AfterRecord("100")).apply(fetched) is fetched
    assert begin(AtTimestamp(1_000_123)).apply(fetched) is fetched


def test_one_warning_for_each_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = StreamAddress("s", None, "us-east-1", "http://127.0.0.1:2")
    with caplog.at_level(logging.WARNING):
        for at in (ADDRESS, ADDRESS, elsewhere):
            begin(AfterRecord("100"), at=at).apply(page(record(100)))
            begin(AtTimestamp(1_000_123), at=at).apply(page(record(1, 990_001)))
    told = [one.getMessage() for one in caplog.records]
    assert ["127.0.0.1:1" in text for text in told] == [True, False]
    assert SHARD in told[0]
    assert "at the requested position" in told[0]


def test_instants_that_a_client_cuts_to_the_second_are_no_fault_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        cut = begin(AtTimestamp(1_000_900))
        assert given_by(cut, page(record(1, 1_000_100), record(2, 1_000_950))) == [2]
    assert not caplog.records


@given(
    arrivals=st.lists(st.integers(0, 9_000), min_size=1, max_size=30),
    since=st.integers(0, 9_000),
    early=st.integers(0, 30),
    sizes=st.lists(st.integers(1, 5), min_size=30, max_size=30),
)
def test_wherever_a_server_begins_before_an_instant_the_same_records_are_given(
    arrivals: list[int], since: int, early: int, sizes: list[int]
) -> None:
    """A replay gives the same, in pages of any size: from the first one since the instant on."""
    # None in whole seconds, which are taken for cut ones.
    times = [ms + (ms % 1000 == 0) for ms in arrivals]
    first = next((at for at, ms in enumerate(times) if ms >= since), len(times))
    records = [record(at + 1, ms) for at, ms in enumerate(times)]
    left = records[min(early, first) :]
    cut, found = begin(AtTimestamp(since)), []
    for size in sizes:
        found += given_by(cut, page(*left[:size]))
        left = left[size:]
    assert found == [at + 1 for at in range(first, len(times))]


def test_records_that_come_behind_later_ones_are_asked_for_again() -> None:
    """Between what was returned, before all of it, and behind a start."""
    cases: list[tuple[Position, list[tuple[int, ...]], tuple[int, ...], Position]] = [
        (TRIM_HORIZON, [(4, 5)], (1, 2), TRIM_HORIZON),
        (AfterRecord("3"), [(6, 7)], (4, 5), AfterRecord("3")),
        (AfterRecord("3"), [(4, 5), (8, 9)], (6, 7), AfterRecord("5")),
        (AfterRecord("3"), [(4, 5), (8, 9)], (3, 4, 6), AfterRecord("5")),
        (AtTimestamp(1_000_000), [(4, 5)], (1, 2), AtTimestamp(1_000_000)),
    ]
    for position, came, late, resume_at in cases:
        cut = begin(position)
        for numbers in came:
            cut.apply(page(*map(record, numbers)))
        with pytest.raises(OutOfOrderError, match=f"{SHARD} of .* came behind") as error:
            cut.apply(page(*[record(number, 1_001_000) for number in late]))
        assert error.value.resume_at == resume_at


def test_what_was_returned_is_dropped_when_it_comes_again() -> None:
    cut = begin(AfterRecord("3"))
    for numbers in ((4, 5), (8, 9)):
        cut.apply(page(*map(record, numbers)))
    assert given_by(cut, page(*map(record, (1, 2, 3, 4, 5, 8)))) == []
    assert given_by(cut, page(*map(record, (5, 8, 9, 10)))) == [10]


def test_what_is_read_again_is_not_taken_for_returned() -> None:
    cut = begin(AfterRecord("3"))
    cut.apply(page(*map(record, (4, 5, 6, 7))))
    cut.rewind("5")
    assert given_by(cut, page(record(8))) == [8]
    with pytest.raises(OutOfOrderError) as error:
        cut.apply(page(record(6)))
    assert error.value.resume_at == AfterRecord("5")


def test_only_so_many_pages_are_remembered() -> None:
    cut = begin(TRIM_HORIZON)
    for number in range(10, 10 + 10 * 70, 10):
        cut.apply(page(record(number), record(number + 1)))
    assert given_by(cut, page(record(5), record(55), record(71))) == []
    with pytest.raises(OutOfOrderError) as error:
        cut.apply(page(record(75)))
    assert error.value.resume_at == AfterRecord("71")


def test_records_from_before_an_instant_are_not_asked_for_again() -> None:
    cut = begin(AtTimestamp(1_000_000))
    cut.apply(page(record(4), record(5)))
    assert given_by(cut, page(record(1, None), record(2, 999_000), record(3, 1_000_999))) == []
