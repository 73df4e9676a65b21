"""When the calls on records in hand are made, and with which records."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sparkinesis.queue.client import Answered, Received
from sparkinesis.queue.lanes import Lane, Told
from sparkinesis.queue.record import Held


def held(number: int = 0) -> Held:
    return Held(Received(f"handle{number}", f"id{number}", b"", receive_count=1), 30.0, 3600.0)


def succeed(entries: Sequence[Held]) -> list[Answered]:
    return [Answered(one.handle, None) for one in entries]


@pytest.fixture
def lane() -> Lane:
    return Lane("acknowledge", "AcknowledgeQueueRecords", succeed, linger=0.005)


def test_a_record_waits_for_others_until_ten_are_there(lane: Lane) -> None:
    assert lane.due(at_once=False) == math.inf
    news = [lane.add(held(number), 100.0 + number / 1000) for number in range(9)]
    assert news == [True, *[False] * 8], "the first begins the wait"
    assert lane.due(at_once=False) == 100.005
    assert lane.due(at_once=True) == 100.0
    assert lane.take(100.004, at_once=False) == []
    assert lane.add(held(9), 100.0045), "the tenth ends it"
    assert len(lane.take(100.0045, at_once=False)) == 10


def test_four_calls_are_under_way_at_most(lane: Lane) -> None:
    told: list[Told] = []
    for number in range(50):
        lane.add(held(number), 0.0)
    calls = []
    while entries := lane.take(1.0, at_once=False):
        calls.append(lane.begin(entries, lambda: 1.0, told.append))
    assert len(calls) == 4
    calls[0]()
    lane.end(told[0], told[0].codes(), 1.0, lambda low, _: low)
    assert len(lane.take(1.0, at_once=False)) == 10


def test_a_record_that_is_gone_is_left_out(lane: Lane) -> None:
    first, second = held(1), held(2)
    lane.add(first, 0.0)
    lane.add(second, 0.0)
    first.is_gone = True
    assert lane.take(1.0, at_once=False) == [second]


def test_a_record_that_waits_can_be_left_out_and_one_whose_call_has_begun_cannot(
    lane: Lane,
) -> None:
    first, second = held(1), held(2)
    lane.add(first, 0.0)
    lane.add(second, 0.0)
    assert lane.drop(first)
    assert lane.take(1.0, at_once=False) == [second]
    assert not lane.drop(second)


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalFailureException", "Unknown"])
def test_after_a_failure_the_next_call_is_later_and_later(lane: Lane, code: str) -> None:
    waits = []
    for _ in range(8):
        one = held()
        lane.add(one, 0.0)
        (entry,) = lane.take(100.0, at_once=True)
        told = Told(lane, [entry], 100.0, [Answered(entry.handle, code)])
        lane.begin([entry], lambda: 100.0, lambda _: None)
        lane.end(told, told.codes(), 100.0, lambda _, high: high)
        lane.add(entry, 100.0)
        waits.append(round(lane.due(at_once=True) - 100.0, 6))
        lane._waiting.clear()
        lane._not_before = 0.0
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_one_entry_of_many_that_failed_delays_the_next_call(lane: Lane) -> None:
    entries = [held(0), held(1)]
    told = Told(lane, entries, 0.0, [*succeed(entries[:1]), Answered("handle1", "Unknown")])
    lane.begin(entries, lambda: 0.0, lambda _: None)
    lane.end(told, told.codes(), 0.0, lambda _, high: high)
    lane.add(entries[1], 0.0)
    assert lane.due(at_once=True) == 0.05


def test_a_success_and_a_void_handle_end_the_back_off(lane: Lane) -> None:
    for code in ("ThrottlingException", "InvalidArgumentException"):
        told = Told(lane, [held()], 0.0, [Answered("handle0", code)])
        lane.begin(told.entries, lambda: 0.0, lambda _: None)
        lane.end(told, told.codes(), 0.0, lambda _, high: high)
    assert lane._failures == 0
