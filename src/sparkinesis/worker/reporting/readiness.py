"""The decision whether a worker is ready: whether it sees the lease table now, leases or not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.worker.reporting.failures import describe

_FAILOVER_TIMES = 3
"""Failover times without a complete look at the table after which a worker is not ready."""
_LEAST = 10.0
"""The same in seconds, if that is more."""


class Looks(msgspec.Struct, frozen=True):
    """The looks at the lease table so far."""

    at: float | None = None
    """The time of the last complete look; None before the first."""
    error: str | None = None
    """The error of the last look, if it failed."""
    is_refused: bool = False
    """True if the look was refused, so that a retry cannot help."""


def table_problem(looks: Looks, now: float, failover_time: float) -> str | None:
    """Return why a worker does not see its lease table; None if it does. Pure."""
    why = f": {looks.error}" if looks.error else ""
    if looks.is_refused:
        return f"the last look at the lease table failed{why}"
    if looks.at is None:
        return f"the worker has not seen the whole lease table yet{why}"
    if now - looks.at > max(_FAILOVER_TIMES * failover_time, _LEAST):
        return f"the last complete look at the lease table was {now - looks.at:.0f} s ago{why}"
    return None


class TableLooks:
    """The looks of one worker; the thread that takes leases notes them, any thread may ask."""

    def __init__(self, clock: Callable[[], float], failover_time: float) -> None:
        self._clock = clock
        self._failover_time = failover_time
        self._looks = Looks()
        self._began = clock()

    @property
    def unseen_for(self) -> float:
        """The seconds since the worker has seen the whole table; since its start before that."""
        at = self._looks.at
        return max(0.0, self._clock() - (self._began if at is None else at))

    def note(self) -> None:
        """Note that the worker has seen the whole table."""
        self._looks = Looks(self._clock())

    def note_failure(self, error: Exception) -> None:
        """Note that a look, or what follows from it, failed."""
        is_refused = not isinstance(error, LeaseTableUnavailableError)
        self._looks = Looks(self._looks.at, describe(error), is_refused)

    def problem(self) -> str | None:
        """Return why the worker does not see its lease table now; None if it does."""
        return table_problem(self._looks, self._clock(), self._failover_time)
