"""A record in hand: who is told that it was let go."""

from __future__ import annotations

from sparkinesis.queue.client import Received
from sparkinesis.queue.record import Held


def held() -> Held:
    return Held(Received("handle", "id", b"", receive_count=1), 30.0, 3600.0)


def test_a_handler_is_told_when_its_record_is_let_go() -> None:
    one, told = held(), list[str]()
    one.on_lost(lambda: told.append("first"))
    one.on_lost(lambda: told.append("second"))
    assert told == []
    one.let_go()
    assert told == ["first", "second"]


def test_a_handler_that_begins_as_its_record_is_let_go_is_told_at_once() -> None:
    """Its hold may end between the look at it and the begin of the coroutine."""
    one, told = held(), list[str]()
    one.let_go()
    one.on_lost(lambda: told.append("late"))
    assert told == ["late"]
