"""Which records of a page are delivered: those after a jump, and those of ``skip_older_than``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from sparkinesis.stream.page import Fetched, Page, Record
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.retention import ReadProgress
from sparkinesis.worker.lifecycle.shard.selection import Selection, ShardProgress, select

BOUND_MS = 5_000
CHECK: Any = object()


def record(number: int, ms: int | None = None) -> Record:
    arrived = None if ms is None else ms / 1000
    return Record(data=b"", sequence_number=str(number), approximate_arrival_timestamp=arrived)


def progress(
    position: Position = TRIM_HORIZON,
    before_jump: AfterRecord | None = None,
    jumped_to_ms: int | None = None,
) -> ShardProgress:
    return ShardProgress(ReadProgress(position), CHECK, before_jump, 77, jumped_to_ms)


def selected(
    before: ShardProgress,
    records: Sequence[Record],
    bound_ms: int | None = None,
    *,
    may_jump: bool = True,
    is_found: bool = True,
) -> Selection:
    fetched = Fetched(Page(list(records), "next", 9), 0, 9_000)
    return select(before, fetched, records if is_found else None, bound_ms, may_jump=may_jump)


def numbers(found: Selection) -> list[int]:
    return [int(one.sequence_number) for one in found.records]


def test_without_a_bound_all_records_that_were_found_are_delivered() -> None:
    found = selected(progress(), [record(1, 10), record(2, 20)])
    assert (numbers(found), found.jump_to_ms) == ([1, 2], None)
    after = found.progress
    assert cast(AfterRecord, after.deliver_after).sequence_number == "2"
    assert (after.start_check, after.last_arrival_ms) == (None, 20)
    unchecked = selected(progress(), [record(1, 10)], is_found=False)
    assert numbers(unchecked) == []
    assert (unchecked.progress.start_check, unchecked.progress.last_arrival_ms) == (CHECK, 77)


@pytest.mark.parametrize(("sub", "left"), [(None, [6, 7]), (2, [5, 6, 7])])
def test_after_a_jump_nothing_comes_again_but_a_record_that_is_done_in_part(
    sub: int | None, left: list[int]
) -> None:
    before = progress(AtTimestamp(1), AfterRecord("5", sub_sequence_number=sub))
    found = selected(before, [record(4), record(5), record(6), record(7)])
    assert numbers(found) == left
    assert found.progress.before_jump is None
    behind = selected(before, [record(3), record(4)])
    assert (numbers(behind), behind.progress.before_jump) == ([], before.before_jump)
    assert behind.progress.deliver_after == before.before_jump


def test_a_page_that_ends_before_the_bound_is_jumped_over() -> None:
    old = [record(1, BOUND_MS - 9), record(2, BOUND_MS - 1)]
    found = selected(progress(AfterRecord("0")), old, BOUND_MS)
    assert (numbers(found), found.jump_to_ms) == ([], BOUND_MS)
    assert found.progress == ShardProgress(
        ReadProgress(AtTimestamp(BOUND_MS)), None, AfterRecord("0"), BOUND_MS - 1, BOUND_MS
    )
    waits = selected(progress(), old, BOUND_MS, may_jump=False)
    assert (numbers(waits), waits.jump_to_ms) == ([], None)
    assert selected(progress(), [], BOUND_MS).jump_to_ms is None
    for last in (record(2, BOUND_MS), record(2)):
        one = selected(progress(), [record(1, BOUND_MS - 1), last], BOUND_MS)
        assert (numbers(one), one.jump_to_ms) == ([2], None), "known to be old, or delivered"


@pytest.mark.parametrize(
    ("reached", "last"),
    [
        (AfterRecord("9"), AfterRecord("10")),
        (AfterRecord("11"), AfterRecord("11")),
        (AtTimestamp(1), AfterRecord("10")),
    ],
)
def test_a_jump_remembers_the_farthest_record(reached: Position, last: AfterRecord) -> None:
    found = selected(progress(reached, AfterRecord("10")), [record(12, 1)], BOUND_MS)
    assert found.progress.before_jump == last
    first = selected(progress(TRIM_HORIZON), [record(12, 1)], BOUND_MS)
    assert first.progress.before_jump is None


@pytest.mark.parametrize(("later", "jumps"), [(999, False), (1_000, True)])
def test_a_jump_goes_a_second_beyond_the_one_before(later: int, jumps: bool) -> None:
    before = progress(AtTimestamp(BOUND_MS), None, BOUND_MS)
    found = selected(before, [record(1, 1)], BOUND_MS + later)
    assert (found.jump_to_ms is not None) == jumps
    if not jumps:
        assert found.progress.jumped_to_ms == BOUND_MS
