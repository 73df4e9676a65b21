"""The health of a worker: its loops and pools, its scans of the lease table, and slow calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.metrics.health.http_address import parse_address
from sparkinesis.metrics.health.liveness import Part, SignOfLife
from sparkinesis.status import ShardStatus
from sparkinesis.worker.reporting.failures import describe

if TYPE_CHECKING:
    from sparkinesis.metrics.health.pages import ServedTally

_FAILOVER_TIMES = 3
"""Failover times without a complete scan of the table after which a worker is not ready."""
_LEAST = 10.0
"""The same in seconds, if that is more."""


def serving(http: str | None, labels: Mapping[str, str]) -> ServedTally | None:
    """Take the port of the option ``http``, if it is set. Raises `OptionError`."""
    if http is None:
        return None
    from sparkinesis.metrics.health.pages import ServedTally  # noqa: PLC0415 - imports http.server

    return ServedTally.starting(parse_address("http", http), labels)


class _Loop(NamedTuple):
    name: str
    thread: threading.Thread
    sign: SignOfLife
    may_end: Callable[[], bool]


class WorkerParts:
    """The loops and pools of a worker. For any thread.

    pools: the function that returns each pool, or a thread of all workers, as a part, by its name
    for people.
    """

    def __init__(self, pools: Mapping[str, Callable[[str], Part]]) -> None:
        self._pools = dict(pools)
        self._loops: tuple[_Loop, ...] = ()

    def add(
        self, name: str, thread: threading.Thread, sign: SignOfLife, may_end: Callable[[], bool]
    ) -> None:
        """Add a loop whose thread runs, and which may end once ``may_end`` returns True."""
        self._loops = (*self._loops, _Loop(name, thread, sign, may_end))

    def now(self) -> list[Part]:
        """Return the parts as of now."""
        loops = [
            Part(one.name, one.sign.due, is_dead)
            for one in self._loops
            # The thread first: it may end between the two questions.
            if not (is_dead := not one.thread.is_alive()) or not one.may_end()
        ]
        return loops + [part(name) for name, part in self._pools.items()]


class TableScans:
    """The scans of the lease table by one worker, which make it ready or not.

    The thread that takes leases notes them, any thread may ask.
    """

    def __init__(self, clock: Callable[[], float], failover_time: float) -> None:
        self._clock = clock
        self._patience = max(_FAILOVER_TIMES * failover_time, _LEAST)
        self._began = clock()
        self._seen_at: float | None = None
        self._failure: tuple[str, bool] | None = None
        """The error of the last scan, and whether it was refused; None if it did not fail."""

    @property
    def unseen_for(self) -> float:
        """The seconds since the worker has seen the whole table; since its start before that."""
        at = self._seen_at
        return max(0.0, self._clock() - (self._began if at is None else at))

    def note(self) -> None:
        """Note that the worker has seen the whole table."""
        self._seen_at, self._failure = self._clock(), None

    def note_failure(self, error: Exception) -> None:
        """Note that a scan, or the work after it, failed."""
        self._failure = describe(error), not isinstance(error, LeaseTableUnavailableError)

    def problem(self) -> str | None:
        """Return why the worker does not see its lease table now; None if it does.

        A scan that was refused is a problem at once, because a retry cannot help.
        """
        at, failure = self._seen_at, self._failure
        why = "" if failure is None else f": {failure[0]}"
        if failure is not None and failure[1]:
            return f"the last scan of the lease table failed{why}"
        if at is None:
            return f"the worker has not seen the whole lease table yet{why}"
        ago = self._clock() - at
        if ago > self._patience:
            return f"the last complete scan of the lease table was {ago:.0f} s ago{why}"
        return None


def slow_calls(shards: Iterable[ShardStatus], limit: float | None) -> list[str]:
    """Return a sentence for each call of ``process_records`` beyond the limit in seconds. Pure."""
    return [
        f"process_records has taken {shard.processing_for:.0f} s on {shard.lease}; "
        f"processing_time_limit is {limit:g} s"
        for shard in shards
        if limit is not None and shard.processing_for is not None and shard.processing_for > limit
    ]
