"""U3: a failure that repeats is told once, and ever more rarely."""

from __future__ import annotations

from sparkinesis.metrics.repeats import Repeats


class Told:
    def __init__(self) -> None:
        self.now = 0.0
        self.repeats = Repeats(lambda: self.now)
        self.told: list[tuple[float, int]] = []

    def fail(self, text: str, at: float) -> None:
        self.now = at
        if times := self.repeats.note(text):
            self.told.append((at, times))


def test_the_same_failure_is_told_after_a_minute_then_after_two_then_four() -> None:
    one = Told()
    for second in range(500):
        one.fail(f"expired. The service said: request {second}", float(second))
    assert one.told == [(0.0, 1), (60.0, 60), (180.0, 120), (420.0, 240)]


def test_another_failure_is_told_at_once() -> None:
    one = Told()
    one.fail("expired", 0.0)
    one.fail("away", 1.0)
    one.fail("expired", 2.0)
    assert one.told == [(0.0, 1), (1.0, 1)]


def test_a_failure_behind_a_success_is_told_at_once() -> None:
    one = Told()
    one.fail("expired", 0.0)
    one.fail("expired", 1.0)
    one.repeats.end()
    one.fail("expired", 2.0)
    assert one.told == [(0.0, 1), (2.0, 1)]
