"""What a task reads: the records between two places, each once, and what it owes of them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkinesis.errors import (
    DataLossError,
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.stream.position import (
    NONE_OF_IT,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    ShardRange,
)
from sparkinesis.stream.reading.range import SMALLEST_PAGE, cut_at_end, page_limit, read_range
from sparkinesis.stream.reading.retention import RetentionCheck


def page(*numbers: int) -> list[Record]:
    return [Record(data=b"", partition_key="k", sequence_number=str(n)) for n in numbers]


AFTER, BEFORE = AfterRecord("20"), AfterRecord("20", sub_sequence_number=NONE_OF_IT)


@pytest.mark.parametrize(
    ("end", "numbers", "within", "is_over", "is_found"),
    [
        (AFTER, (3, 9), 2, False, False),
        (AFTER, (9, 20), 2, True, True),
        (AFTER, (9, 20, 100), 2, True, True),
        (AFTER, (9, 100), 1, True, False),
        (AFTER, (100,), 0, True, False),
        (BEFORE, (3, 9), 2, False, False),
        (BEFORE, (9, 20), 1, True, True),
        (BEFORE, (9, 20, 100), 1, True, True),
        (BEFORE, (20,), 0, True, True),
        (BEFORE, (9, 100), 1, True, False),
        (SHARD_END, (9, 100), 2, False, False),
        (AFTER, (), 0, False, False),
    ],
)
def test_a_page_is_cut_at_the_end(
    end: AfterRecord, numbers: tuple[int, ...], within: int, *, is_over: bool, is_found: bool
) -> None:
    records = page(*numbers)
    assert cut_at_end(records, end) == (records[:within], is_over, is_found)


def test_pages_are_as_large_as_what_is_left_and_a_little_more() -> None:
    assert page_limit(10_000, None, 9_000) == 10_000
    assert page_limit(10_000, 9_000, 1_000) == 8_401
    assert page_limit(8_400, 9_000, 1_000) == 8_400
    assert page_limit(10_000, 200, 150) == SMALLEST_PAGE == 100
    assert page_limit(10_000, 5_000, 4_990) == 499, "the estimate may be wrong by a tenth"
    assert page_limit(10_000, 5_000, 9_000) == 900


NOW = 1_790_000_000_000
HOUR = 3_600_000
SHARD = "shardId-000000000007"


@dataclass
class Pages:
    """A shard's pages, in the order in which they are fetched, whoever opens the shard where.

    An error stands for a page that cannot be fetched.
    """

    pages: list[Fetched | Exception]
    at_end: bool = False
    """True once the closed shard's last page has been fetched, which is the last one here."""
    ends: bool = False
    opened: list[Position] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def open(self, position: Position) -> Pages:
        self.opened.append(position)
        return self

    def fetch(self, limit: int) -> Fetched:
        self.limits.append(limit)
        self.threads.add(threading.current_thread().name.rpartition("_")[0])
        page = self.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        self.at_end = self.ends and not self.pages
        return page


def fetched(*numbers: int, behind: int = 9_000, at: int = NOW) -> Fetched:
    return Fetched(Page(records=page(*numbers), millis_behind_latest=behind), 0, at)


TIP = fetched(behind=0)


@dataclass
class Read:
    """What a task has of a range."""

    rows: list[list[str]]
    losses: list[str]


def read(
    pages: Pages,
    start: Position,
    end: AfterRecord | None = None,
    *,
    is_initial: bool = False,
    first: str | None = None,
    **options: Any,
) -> Read:
    """Read up to the shard's end, or another; losses are accepted."""
    losses: list[str] = []
    check = RetentionCheck(
        StreamClient(StreamAddress("flights", None, "us-east-1")),
        fail_on_data_loss=False,
        on_loss=losses.append,
        on_accepted=lambda: losses.append("refused"),
        describe=lambda: StreamSummary(24 * HOUR, NOW),
    )
    wanted = ShardRange(SHARD, start, end or SHARD_END, is_initial, first)
    found = read_range(pages.open, wanted, check, **options)
    return Read([[record.sequence_number for record in records] for records in found], losses)


OLD = AfterRecord("5")
"""A place that is lost if its record is gone: nothing is known of what came behind it."""


@pytest.mark.parametrize("ends", ["behind a record", "with the shard"])
def test_a_task_has_what_is_between_start_and_end_page_by_page(ends: str) -> None:
    pages = Pages([fetched(), fetched(5, 6), fetched(), fetched(7, 8), fetched(9, 12)])
    if ends == "with the shard":
        pages.ends = True
        found = read(pages, OLD)
        assert found == Read([["6"], ["7", "8"], ["9", "12"]], [])
    else:
        pages.pages.append(fetched(13))
        found = read(pages, OLD, AfterRecord("9"))
        assert found == Read([["6"], ["7", "8"], ["9"]], [])
    assert pages.opened == [OLD]
    assert len(pages.limits) == 5, "nothing is fetched behind the end"
    assert set(pages.limits) == {10_000}
    assert pages.threads == {"get-records"}, "of a name that a profile shows"


def test_the_last_page_of_a_shard_may_be_empty() -> None:
    pages = Pages([fetched(6, behind=0), TIP, fetched()], ends=True)
    assert read(pages, TRIM_HORIZON, is_initial=True) == Read([["6"]], [])


def test_a_task_asks_for_about_the_records_that_are_left() -> None:
    """Whatever it is that begins the page."""
    many = fetched(*range(10, 1010), behind=9_000)
    cases: list[tuple[list[Fetched | Exception], list[int]]] = [
        ([many, fetched(2000)], [2101, 1051]),
        ([PositionNotFoundError("gone"), many, fetched(2000)], [2101, 2101, 1051]),
        (
            [many, fetched(2000, at=NOW + 30 * HOUR), fetched(1009, 2000, at=NOW + 30 * HOUR)],
            [2101, 1051, 1051],
        ),
    ]
    for pages, limits in cases:
        given = Pages(list(pages))
        found = read(given, TRIM_HORIZON, AfterRecord("2000"), expected=2000, is_initial=True)
        assert sum(map(len, found.rows)) == 1001
        assert given.limits == limits
        given = Pages(list(pages))
        read(given, TRIM_HORIZON, AfterRecord("2000"), limit=1500, expected=2000, is_initial=True)
        assert given.limits == [min(limit, 1500) for limit in limits]


@pytest.mark.parametrize("is_kept", [True, False])
def test_after_a_pause_a_task_looks_whether_it_has_missed_records(is_kept: bool) -> None:
    """It is held up for thirty hours, twice, and its page then begins with the oldest record."""
    later, last = NOW + 30 * HOUR, NOW + 60 * HOUR
    pages = Pages(
        [
            fetched(5, 6),
            fetched(7, at=later),
            fetched(at=later),
            fetched(6, 7, at=later) if is_kept else fetched(7, at=later),
            fetched(8, at=later + 300_000),
            fetched(9, at=last),
            fetched(8, 9, at=last),
        ]
    )
    found = read(pages, OLD, AfterRecord("9"))
    assert found.rows == [["6"], ["7"], ["8"], ["9"]]
    assert ["position 6 in" in text for text in found.losses] == ([] if is_kept else [True])
    assert pages.opened == [OLD, AfterRecord("6"), AfterRecord("8")]


@pytest.mark.parametrize(("pause_ms", "looks"), [(300_000, 0), (300_001, 1)])
def test_a_pause_within_the_life_of_an_iterator_needs_no_look(pause_ms: int, looks: int) -> None:
    later = NOW + pause_ms
    pages = Pages([fetched(5, 6), fetched(7, at=later), fetched(6, 7, at=later)])
    assert read(pages, OLD, AfterRecord("7")).rows == [["6"], ["7"]]
    assert pages.opened == [OLD, *[AfterRecord("6")] * looks]


def test_a_start_that_the_service_refuses_is_one_loss_and_the_oldest_records_follow() -> None:
    pages = Pages([PositionNotFoundError("gone"), fetched(8), fetched(9)])
    assert read(pages, OLD, AfterRecord("9")) == Read([["8"], ["9"]], ["refused"])
    assert pages.opened == [OLD, TRIM_HORIZON]


def test_a_place_that_is_refused_after_a_pause_is_one_loss_too() -> None:
    later = NOW + 30 * HOUR
    pages = Pages(
        [
            fetched(5, 6),
            fetched(7, at=later),
            PositionNotFoundError("gone"),
            fetched(7, 8, at=later),
            fetched(9, at=later),
        ]
    )
    assert read(pages, OLD, AfterRecord("9")) == Read([["6"], ["7", "8"], ["9"]], ["refused"])
    assert pages.opened == [OLD, AfterRecord("6"), TRIM_HORIZON]


def test_a_shard_that_is_gone_is_a_loss_and_the_end_of_its_range() -> None:
    pages = Pages([fetched(5, 6), ShardNotFoundError("gone"), fetched(7)])
    assert read(pages, OLD) == Read([["6"]], ["refused"])


@pytest.mark.parametrize("error", [PositionNotFoundError, ShardNotFoundError])
def test_a_loss_ends_the_task_unless_it_is_accepted(error: type[DataLossError]) -> None:
    check = RetentionCheck(StreamClient(StreamAddress("flights")))
    pages = Pages([error("gone"), fetched(8), fetched(9)])
    with pytest.raises(error):
        list(read_range(pages.open, ShardRange(SHARD, OLD, AfterRecord("9")), check))


FIRST, LAST, OF_START = "The record 7 in", "The position 9 in", "The position 5 in"


@pytest.mark.parametrize(
    ("start", "first", "pages", "losses"),
    [
        (TRIM_HORIZON, "7", [fetched(), fetched(7, 8), fetched(9)], []),
        (TRIM_HORIZON, "7", [fetched(), fetched(8), fetched(9)], [FIRST]),
        # Once for both records.
        (TRIM_HORIZON, "7", [fetched(), fetched(12)], [FIRST]),
        (TRIM_HORIZON, "7", [fetched(), TIP], [FIRST]),
        # Not only the first of them has to be there.
        (TRIM_HORIZON, "7", [fetched(7), fetched(12)], [LAST]),
        (OLD, None, [fetched(5, 6), fetched(8), fetched(12)], [LAST]),
        (OLD, None, [fetched(5, 6), fetched(8), TIP], [LAST]),
        (OLD, None, [fetched(12)], [OF_START, LAST]),
        # The user chose an end before the start.
        (AtTimestamp(NOW - HOUR), None, [fetched(12)], []),
        (AtTimestamp(NOW - 25 * HOUR), None, [fetched(12)], ["AT_TIMESTAMP", LAST]),
    ],
)
def test_the_first_and_the_last_record_of_a_batch_are_owed(
    start: Position, first: str | None, pages: list[Fetched | Exception], losses: list[str]
) -> None:
    there = [one for page in pages if isinstance(page, Fetched) for one in page.page.records]
    expected = [one.sequence_number for one in there if one.sequence_number in {"6", "7", "8", "9"}]
    found = read(Pages(list(pages)), start, AfterRecord("9"), first=first)
    assert list(itertools.chain(*found.rows)) == expected
    assert [told in text for told, text in zip(losses, found.losses, strict=True)] == [True] * len(
        losses
    )


@pytest.mark.parametrize("end", [None, AfterRecord("9")])
def test_a_closed_shard_that_holds_nothing_of_a_batch_any_more_is_told(
    end: AfterRecord | None,
) -> None:
    found = read(Pages([fetched(), fetched()], ends=True), TRIM_HORIZON, end, first="7")
    assert found.rows == []
    assert ["The record 7 in shard shardId-000000000007" in text for text in found.losses] == [True]


def test_a_closed_shard_that_never_ends_fails_its_task_after_ten_minutes() -> None:
    pages = Pages([fetched(5, 6), *[TIP] * 700, fetched()], ends=True)
    seconds = itertools.count(0, 1.0)
    with pytest.raises(ServiceError) as caught:
        read(pages, OLD, clock=lambda: next(seconds))
    assert f"Shard {SHARD} of stream 'flights' in us-east-1 does not end" in str(caught.value)
    assert "at 6" in str(caught.value)
    assert (
        read(Pages([*[TIP] * 700, fetched()], ends=True), TRIM_HORIZON, clock=lambda: 0.0).rows
        == []
    )
