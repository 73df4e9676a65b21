"""When a hold is looked at again."""

from __future__ import annotations

import math

from sparkinesis.queue.client import Received
from sparkinesis.queue.holds import _MOST_GONE, _Due
from sparkinesis.queue.record import Held


def held(number: int) -> Held:
    return Held(Received(f"handle{number}", f"id{number}", b"", receive_count=1), 30.0, 3600.0)


def test_the_first_to_end_is_looked_at_first() -> None:
    due = _Due()
    assert due.first == math.inf
    late, soon = held(1), held(2)
    due.add(late, 20.0)
    due.add(soon, 10.0)
    assert due.first == 10.0
    assert list(due.pop(15.0)) == [soon]
    assert list(due.pop(20.0)) == [late]


def test_settled_records_are_forgotten_long_before_their_time() -> None:
    """A visibility timeout may be 12 hours, in which a process settles millions."""
    due = _Due()
    lasting = held(0)
    due.add(lasting, 40_000.0)
    for number in range(3 * _MOST_GONE):
        one = held(number + 1)
        due.add(one, 30_000.0)
        one.is_gone = True
        due.forget_gone(1)
        assert len(due._heap) <= _MOST_GONE + 2
    assert lasting in list(due.pop(math.inf))
