"""How far a shard is behind, and since when it stands still, by what its worker has of it.

The service's figure is that of the last page. It says nothing of the page's records once they are
here: while a processor holds them, they grow old, and no later page may follow. So the age of what
is held counts as well, and so does the time for which no page has come at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.reading.shard_end import TimeAtTip
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.lifecycle.shard.states import Task
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage

UNHEARD_AFTER = 30.0
"""Seconds without a page after which they count as lag: more than a few retries take."""


NAMED_AFTER = 10.0
"""Seconds after which a status says why a shard stands still: a usual call is shorter."""


class LastPage:
    """The last page of a shard that was taken. Written by the consumer's thread, read by any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.millis_behind_latest: int | None = None
        """The service's figure; None before the first page."""
        self.fetched_ms: int | None = None
        """The time of the fetch, by the service's clock (epoch ms)."""
        self.time_at_tip = TimeAtTip(clock)

    def note(self, page: FetchedPage) -> None:
        self.fetched_ms = page.service_time_ms
        self.millis_behind_latest = page.fetched.page.millis_behind_latest
        self.time_at_tip.observe(page.fetched.page, at_end=page.at_shard_end)


class CallWatch:
    """The calls of a shard's record processor. Written by the consumer's thread, read by any."""

    def __init__(self) -> None:
        self.processing_since: float | None = None
        """The start of the oldest call that runs; None: none does."""
        self.front: Front | None = None
        """The first records that were given to the processor and are not done."""
        self.oldest_at: float | None = None
        """The arrival of the oldest record that is not done, by the worker's clock; None: there is
        none."""
        self.records = 0
        """The number of user records in successful calls."""

    def begin(self, batch: RecordBatch, now: float, *, has_failed: bool) -> None:
        """Note the call for a batch, the first or another one."""
        since = now if self.front is None else self.front.since
        self.processing_since, self.front = now, Front(since, batch, has_failed)

    def end(self) -> None:
        self.processing_since = None

    def leave(self, *, are_others_left: bool) -> None:
        """Note that the first records are done, or dropped."""
        self.front = None
        if not are_others_left:
            self.oldest_at = None


class Reading(msgspec.Struct, frozen=True):
    """What a worker has of a shard. The ages are in seconds."""

    millis_behind_latest: int | None
    """The service's figure at the last page that was taken; None: there was none, or no figure."""
    unheard_for: float | None
    """The time since a page was fetched, or since one was waited for; None: none is waited for."""
    oldest: float | None
    """The age of the oldest record that is fetched and not done; None: no record is here."""


def millis_behind(reading: Reading, usual_wait: float = 0.0) -> int | None:
    """Return the lag in milliseconds, which is never less than the age of what is held.

    None: nothing is known. usual_wait: the seconds between two pages at the tip.
    """
    figure = reading.millis_behind_latest
    if reading.oldest is not None:
        return max(figure or 0, round(reading.oldest * 1000))
    unheard = reading.unheard_for
    if unheard is not None and unheard > UNHEARD_AFTER + usual_wait:
        return (figure or 0) + round(unheard * 1000)
    return figure


class Front(NamedTuple):
    """The first records of a shard that are given to the record processor, and not done."""

    since: float
    """The start of the first call for them, by the worker's clock."""
    batch: RecordBatch
    """Its length is needed for the text only: packed records would be unpacked."""
    has_failed: bool
    method: str = "process_records"

    def __str__(self) -> str:
        what = "an empty batch"
        if self.batch:
            count, last = len(self.batch), self.batch.last
            what = f"record {last}" if count == 1 else f"{count:,} records up to {last}"
        if self.has_failed:
            return f"{self.method} fails again and again on {what}"
        return f"{self.method} has not returned from {what}"


class Standstill(NamedTuple):
    """The time since which a shard makes no progress, although something of it waits."""

    since: float
    """By the worker's clock."""
    why: object
    """The reason; its text is made when it is logged or shown."""


class TaskWatch:
    """The tasks of a shard's consumer. Written by its thread, read by any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: the worker's."""
        self.failures = 0
        """The number of tasks that have failed since the last one that did not."""
        self.problem: tuple[SparkinesisError, float] | None = None
        """The error for which the last task failed, and since when tasks fail; None: none did."""
        self._clock = clock
        self._running: tuple[Task, float] | None = None
        """The task that runs now, and since when; None between two steps."""
        self._failing: tuple[Task, float] | None = None
        """The task that failed last, and since when tasks fail; None: the last one did not."""

    def begin(self, task: Task) -> None:
        self._running = task, self._clock()

    def end(self) -> None:
        self._running = None

    def succeeded(self) -> None:
        self.failures, self.problem, self._failing = 0, None, None

    def failed(self, task: Task, problem: SparkinesisError | None) -> None:
        """Note a failure; ``problem``: the error, if it says why the shard cannot be read."""
        since = self._clock() if self._failing is None else self._failing[1]
        self._failing = task, since
        if problem is not None:
            self.problem = problem, since if self.problem is None else self.problem[1]
        self.failures += 1

    def standstill(self, front: Front | None, refused_since: float | None) -> Standstill | None:
        """Return since when a shard makes no progress although something of it waits, and why.

        None: nothing waits. Each call of a processor, and each task that runs, is one for a moment.
        front, refused_since: of the delivery, once there is one.
        """
        running, failing = self._running, self._failing
        if front is None and refused_since is None and failing is None:
            if running is None:
                return None
            return Standstill(running[1], f"the task {running[0].value!r} has not ended")
        found = [
            None if front is None else Standstill(front.since, front),
            None
            if refused_since is None
            else Standstill(refused_since, "automatic checkpoints fail again and again"),
            None
            if failing is None
            else Standstill(failing[1], f"the task {failing[0].value!r} fails again and again"),
        ]
        return min((one for one in found if one), key=lambda one: one.since)


class Warnings:
    """When to warn of shards that stand still: after ``first`` seconds, then less and less."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._warned: dict[str, tuple[float, float]] = {}
        """By lease key: since when the shard stands still, and after how many seconds the next
        warning is due."""

    def due(self, key: str, standstill: Standstill, now: float) -> bool:
        """Return True if a shard's standstill is to be warned of now, and note that it is."""
        seconds, warned = now - standstill.since, self._warned.get(key)
        if seconds < (self._first if warned is None else warned[1]):
            return False
        self._warned[key] = standstill.since, 2 * seconds
        return True

    def over(self, key: str, standstill: Standstill | None, now: float) -> float | None:
        """Return for how long a shard stood still, once, if it was warned of and is over."""
        warned = self._warned.get(key)
        if warned is None or (standstill is not None and standstill.since == warned[0]):
            return None
        del self._warned[key]
        return now - warned[0]

    def forget(self, key: str) -> None:
        """Forget a shard that is no longer read here."""
        self._warned.pop(key, None)
