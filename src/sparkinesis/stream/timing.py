"""The source of time and randomness: the machine, or a simulation."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from sparkinesis.stream.calls.retry import Backoff


def _seeded_by_the_machine() -> random.Random:
    return random.Random(random.SystemRandom().getrandbits(64))  # noqa: S311 - no secret


class Timing(msgspec.Struct, frozen=True):
    """The clocks, the waiting and the randomness of one worker or planner."""

    clock: Callable[[], float] = time.monotonic
    """Monotonic, in seconds."""
    sleep: Callable[[float], None] = time.sleep
    wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """The wall clock in epoch ms; supplies the milliseconds that the service's clock lacks."""
    checkpoint_clock: Callable[[], float] | None = None
    """Measures ``checkpoint_seconds``, for a test whose time stands still; None: ``clock``."""
    new_rng: Callable[[], random.Random] = _seeded_by_the_machine

    def of(self, retry: Backoff, rng: random.Random) -> Backoff:
        """Return ``retry`` with this clock and sleep, and the randomness of ``rng``."""
        return replace(retry, clock=self.clock, sleep=self.sleep, uniform=rng.uniform)


MACHINE = Timing()
