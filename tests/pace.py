"""The pace of this machine: the seconds in a test are those of an idle core, and are scaled by it.

A test that fails because the machine is slow is a defect of the test. A test waits for events, and
gives up after `Deadline`; a failover time that a stalled process must not outlast is
``seconds(...)``. Where a deadline is itself the property, the test belongs into the simulation,
whose time is virtual.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sparkinesis.stream.calls.retry import Backoff

_ROUNDS = 250_000
_IDLE_SECONDS = 0.025
"""What `_work` takes on an idle core of the machine for which the tests' seconds were chosen."""
_MOST = 12.0
"""A machine slower than that is given up on: a test that hangs should end in some minutes."""


def _work(rounds: int = 1) -> int:
    total = 0
    for number in range(rounds * _ROUNDS):
        total += number * number % 7
    return total


def slowness(rounds: int = 1) -> float:
    """Return how much longer than on an idle core a short computation takes now; 1 or more."""
    began = time.perf_counter()
    _work(rounds)
    return min(_MOST, max(1.0, (time.perf_counter() - began) / (rounds * _IDLE_SECONDS)))


AT_START = slowness(rounds=16)
"""Measured when a process begins its tests: over several turns that a busy core shares out."""


def seconds(idle: float) -> float:
    """Return what takes ``idle`` seconds on an idle machine; the same value throughout a run."""
    return idle * AT_START


def retry() -> Backoff:
    """Return the retries of a test's own looks at a lease table; a worker's give up far sooner."""
    return Backoff(base=0.05, cap=1.0, give_up_after=seconds(30))


class Deadline:
    """The end of a wait. It is put off if the machine has become slower than it was at the start.

    seconds: on an idle machine.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began = clock()
        self._slowest = AT_START

    def has_passed(self) -> bool:
        waited = self._clock() - self._began
        if waited <= self._seconds * self._slowest:
            return False
        self._slowest = max(self._slowest, slowness())
        return waited > self._seconds * self._slowest


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that nothing announces."""
    deadline = Deadline(60.0)
    while not condition():
        assert not deadline.has_passed()
        time.sleep(0.05)
