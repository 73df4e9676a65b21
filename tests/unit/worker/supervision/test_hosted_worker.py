"""A start that is no longer wanted ends, whether its worker is made already or not."""

from __future__ import annotations

import time
from typing import cast

import pytest

from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.supervision.hosted_worker import WorkerStart


class Made:
    """A worker that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def request_shutdown(self, timeout: float) -> None:
        self.calls.append(f"shut down within {timeout:g} s")

    def start(self) -> None:
        self.calls.append("start")


def test_a_worker_that_is_made_after_the_order_to_shut_down_gets_it_before_its_start() -> None:
    made = Made()
    start = WorkerStart(lambda: cast("Worker", made))
    start.shut_down(7.0)
    start.run()
    assert made.calls == ["shut down within 7 s", "start"]


def test_a_worker_that_is_made_gets_the_order_at_once() -> None:
    made = Made()
    start = WorkerStart(lambda: cast("Worker", made))
    start.run()
    start.shut_down(7.0)
    assert made.calls == ["start", "shut down within 7 s"]


@pytest.mark.parametrize(
    ("waited", "is_over", "is_late"), [(4.9, False, False), (5.1, False, True), (5.1, True, False)]
)
def test_a_start_takes_too_long_once_the_shortest_time_for_a_shutdown_is_up(
    monkeypatch: pytest.MonkeyPatch, waited: float, is_over: bool, is_late: bool
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    start = WorkerStart(lambda: cast("Worker", Made()))
    start.shut_down(5.0)
    start.shut_down(60.0)
    now[0] += waited
    start.is_over = is_over
    assert start.takes_too_long is is_late
