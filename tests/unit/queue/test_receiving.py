"""How many records are asked for: the places in hand, by number and by bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sparkinesis.queue.receiving import _UNKNOWN_SIZE, Places
from tests.journal import PATIENCE
from tests.pace import eventually

MIB = 1 << 20


def places(
    concurrency: int,
    max_bytes: int = 128 * MIB,
    *,
    batch_size: int = 1,
    has_room: Callable[[], bool] = lambda: True,
) -> Places:
    return Places(concurrency, batch_size, max_bytes, 30, has_room)


class Waiting:
    """A thread that waits for places."""

    def __init__(self, of: Places) -> None:
        self.got: list[int] = []
        self._thread = threading.Thread(target=lambda: self.got.append(of.reserve()), daemon=True)
        self._thread.start()
        eventually(lambda: bool(of._changed._waiters) or not self._thread.is_alive())  # type: ignore[attr-defined]

    def result(self) -> int:
        self._thread.join(PATIENCE)
        (got,) = self.got
        return got


def test_a_receive_asks_for_what_is_free_and_for_ten_at_most() -> None:
    found = places(12)
    assert [found.reserve(), found.reserve()] == [10, 2]
    assert found.taken == 12


def test_what_a_receive_did_not_bring_is_free_for_another_one() -> None:
    found = places(2)
    assert found.reserve() == 2
    other = Waiting(found)
    found.received(2, [5])
    assert other.result() == 1
    assert found.taken == 2


def test_a_handler_that_ends_makes_room_for_one() -> None:
    found = places(2)
    found.received(found.reserve(), [5, 5])
    other = Waiting(found)
    found.free(1, 5, handled=1)
    assert other.result() == 1
    assert found.handled == 1


def test_user_records_of_an_aggregate_take_places_and_give_them_back() -> None:
    found = places(4)
    found.received(found.reserve(), [100])
    found.unpacked(5)
    assert found.taken == 6
    other = Waiting(found)
    found.free(3, 100)
    assert other.result() == 1


def test_quick_handlers_have_ten_more_wait() -> None:
    found = places(1)
    found.received(found.reserve(), [5])
    found.free(1, 5, 0.001)
    assert [found.reserve(), found.reserve()] == [10, 1]


def test_a_call_that_ran_no_handler_says_nothing_of_their_pace() -> None:
    found = places(1)
    found.received(found.reserve(), [5])
    found.free(1, 5, None)
    assert found.reserve() == 1


def test_the_time_of_a_batch_is_that_of_its_records() -> None:
    found = places(1, batch_size=10)
    found.received(found.reserve(), [5] * 10)
    found.free(10, 50, 0.9)
    assert [found.reserve(), found.reserve()] == [10, 10], "0.09 s each"


def test_one_large_record_bounds_the_next_receive_at_once_and_small_ones_free_it_slowly() -> None:
    found = places(20, MIB)
    found.received(found.reserve(), [MIB // 2])
    assert found.reserve() == 1, "half of the memory is left, for one more"
    found.received(1, [])
    found.free(1, MIB // 2)
    asked = []
    for _ in range(3):
        asked.append(found.reserve())
        found.received(asked[-1], [0])
        found.free(1, 0)
    assert asked == [2, 2, 3]


def test_receives_under_way_share_the_bytes_that_may_be_in_hand() -> None:
    """Each may bring ten records, and nobody knows yet how large they are."""
    found = places(1_000, 25 * _UNKNOWN_SIZE)
    assert [found.reserve() for _ in range(3)] == [10, 10, 5]
    found.received(10, [])
    assert found.reserve() == 10
    found.received(10, [_UNKNOWN_SIZE] * 4)
    assert found.reserve() == 6


def test_a_record_that_is_larger_than_the_memory_is_received_alone() -> None:
    found = places(20, MIB)
    found.received(found.reserve(), [3 * MIB])
    other = Waiting(found)
    assert other.got == []
    found.free(1, 3 * MIB)
    assert other.result() == 1


def test_acknowledgements_that_come_make_room() -> None:
    """They tell nobody: the places are looked at again."""
    room = threading.Event()
    found = places(2, has_room=room.is_set)
    other = Waiting(found)
    assert other.got == []
    room.set()
    assert other.result() == 2


@pytest.mark.parametrize("waits", [1, 3])
def test_nobody_waits_once_places_are_closed(waits: int) -> None:
    found = places(1)
    found.reserve()
    others = [Waiting(found) for _ in range(waits)]
    found.close()
    assert [other.result() for other in others] == [0] * waits
    assert found.reserve() == 0


def test_the_end_waits_for_all_that_is_in_hand() -> None:
    found = places(2)
    found.received(found.reserve(), [5, 5])
    found.close()
    assert not found.wait_until_free(0.0)
    found.free(1, 5)
    assert not found.wait_until_free(0.0)
    found.free(1, 5)
    assert found.wait_until_free(0.0)
