"""Whose turn it is: calls begin in order, some at a time, and none once the end has begun."""

from __future__ import annotations

from sparkinesis.queue.handling import HandlerCall, _Turns


def calls(count: int) -> list[HandlerCall]:
    return [HandlerCall([], 0) for _ in range(count)]


def test_calls_begin_in_their_order_and_some_at_a_time() -> None:
    turns, (first, second, third, fourth) = _Turns(2), calls(4)
    assert [turns.begins(one) for one in (first, second, third, fourth)] == [True] * 2 + [False] * 2
    assert [turns.ended(), turns.ended()] == [third, fourth]
    assert [turns.ended(), turns.ended()] == [None, None]
    assert [turns.begins(one) for one in (first, second, third)] == [True, True, False]


def test_no_call_begins_once_the_end_has_begun_and_those_that_come_are_given_back() -> None:
    turns, (runs, waits, late) = _Turns(1), calls(3)
    assert turns.begins(runs)
    assert not turns.begins(waits)
    turns.is_closed = True
    assert turns.ended() is None
    assert not turns.begins(late), "although there is room"
    assert turns.take_back() == [waits, late]
    assert turns.take_back() == []
