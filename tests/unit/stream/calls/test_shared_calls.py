"""Calls of many threads: an answer or an error that all share, and a pace for all."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparkinesis.local import Limits
from sparkinesis.stream.calls.shared_calls import BETWEEN, AccountPace, SharedAnswer


class Service:
    """Counts its calls, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False
        self.now = 100.0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self) -> int:
        self.calls += 1
        self.may_answer.wait()
        if self.fails:
            raise OSError(f"call {self.calls}")
        return self.calls

    def clock(self) -> float:
        return self.now


def test_threads_that_wait_for_a_call_share_its_error_and_later_ones_ask_again() -> None:
    service = Service()
    service.fails = True
    service.may_answer.clear()
    shared = SharedAnswer(service, 2.0, service.clock)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(shared) for _ in range(8)]
        service.may_answer.set()
    assert [str(future.exception()) for future in waiting] == ["call 1"] * 8
    service.now += 0.01
    with pytest.raises(OSError, match="call 2"):
        shared()
    service.fails = False
    service.now += 0.01
    assert shared() == 3


def test_an_answer_serves_until_it_is_old_or_was_asked_for_too_early() -> None:
    service = Service()
    shared = SharedAnswer(service, 2.0, service.clock)
    began = service.now
    assert [shared(), shared(since=began)] == [1, 1]
    service.now += 1.0
    assert [shared(), shared(since=began), shared(since=service.now)] == [1, 1, 2]
    service.now += 1.5
    assert shared.with_age() == (2, 1.5)
    service.now += 0.5
    assert shared.with_age() == (3, 0.0)


def test_calls_of_an_operation_come_some_time_apart() -> None:
    slept: list[float] = []
    now = 10.0
    pace = AccountPace(lambda: now, slept.append)
    for _ in range(4):
        pace("RegisterStreamConsumer")
    pace("DescribeStreamConsumer")
    between = BETWEEN["RegisterStreamConsumer"]
    assert slept == pytest.approx([between, 2 * between, 3 * between])
    now += 60.0
    pace("RegisterStreamConsumer")
    assert len(slept) == 3


@pytest.mark.parametrize("operation", BETWEEN)
def test_a_process_leaves_a_part_of_the_accounts_limit_to_others(operation: str) -> None:
    assert 1 / BETWEEN[operation] < Limits().account_calls[operation]
