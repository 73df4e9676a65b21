"""Time and randomness: those of the machine, or of a simulation, and the service's clock.

The service's clock is read from the ``Date`` headers of its answers.
"""

from __future__ import annotations

import functools
import random
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

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


def service_time(headers: Mapping[str, str], local_ms: int, sent_ms: int | None = None) -> int:
    """Return the service's clock in epoch ms, from an answer's ``Date`` header (whole seconds).

    The local clock supplies the milliseconds if both clocks agree on the second: at the answer
    (``local_ms``), or when the call was sent (``sent_ms``), as a second may end in between. If the
    clocks differ, the result is the start of the header's second, so that no record is skipped.
    """
    date = second_of(headers.get("date"))
    if date is None:
        return local_ms
    second = date * 1000
    for agreeing in (local_ms, sent_ms):
        if agreeing is not None and second <= agreeing < second + 1000:
            return agreeing
    return second


_USUAL = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), ([0-9]{2}) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r" ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT"
)
"""The form that RFC 9110 prescribes. email.utils reads all others, and is slow to import."""
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


@functools.lru_cache(maxsize=16)
def second_of(date: str | None) -> int | None:
    """Return the epoch second of a ``Date`` header; None without a valid one.

    Many answers have the same.
    """
    usual = _USUAL.fullmatch(date or "")
    try:
        if usual is not None:
            day, month, year, *clock = usual.groups()
            hour, minute, second = map(int, clock)
            parsed = datetime(
                int(year),
                _MONTHS.index(month) // 3 + 1,
                int(day),
                hour,
                minute,
                second,
                tzinfo=timezone.utc,
            )
        else:
            from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow to import

            parsed = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    if parsed.tzinfo is None:  # "-0000" names no zone, and means UTC
        parsed = parsed.replace(tzinfo=timezone.utc)
    return int(parsed.timestamp())
