"""What workers count: the metrics of each simulated process, and what its processors did."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest import mock

from sparkinesis.metrics.metrics import ReadGauges
from sparkinesis.metrics.tally import Distribution, Tally
from tests.simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from tests.simulation.world import World


class _CountersOnly(Tally):
    """Nobody looks at gauges: those of a killed process would run its code."""

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        return lambda: None


@dataclass
class Counts:
    """The metrics of all workers, and the calls that returned, by process."""

    scheduler: Scheduler
    tallies: dict[str, list[Tally]] = field(default_factory=lambda: defaultdict(list))
    records: Counter[str] = field(default_factory=Counter)
    """User records in calls of ``process_records`` that returned."""
    last: dict[tuple[str, str], int] = field(default_factory=dict)
    """The records of the last such call, by process and shard."""

    def returned(self, shard: str, records: int) -> None:
        """Note a call that is about to return."""
        process = self._process()
        self.records[process] += records
        self.last[process, shard] = records

    def open(self, *_: object) -> Tally:
        """Return the metrics of a new worker.

        Their locks are real ones: nobody waits while one is held, and a simulated one would give
        the turn to others, so that worlds would not be the same with metrics and without.
        """
        tally = _CountersOnly()
        tally._lock = threading.Lock()
        tally._gauges._lock = threading.Lock()
        self.tallies[self._process()].append(tally)
        return tally

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Measure all workers that are made in the block."""
        with mock.patch("sparkinesis.worker.lifecycle.new_worker.metrics_of", self.open):
            yield

    def sum(self, process: str, metric: str) -> float:
        """The sum of a counter, or the number of a histogram's values, over all labels."""
        return sum(
            one.value.count if isinstance(one.value, Distribution) else one.value
            for tally in self.tallies[process]
            for one in tally.series()
            if one.metric == metric
        )

    def _process(self) -> str:
        task = self.scheduler.current
        assert task is not None
        return task.process.name


def records_are_counted(world: World) -> Iterator[str]:
    """A worker counts the records of calls that returned, each once, and no others.

    One that was killed may not have come to count the last call of each shard.
    """
    counts = world.counts
    killed = {process.name for process in world.fleet.started_at if process.is_killed}
    for process in sorted(counts.tallies):
        counted, returned = counts.sum(process, "records.processed"), counts.records[process]
        calls = world.options.concurrency or 1
        late = sum(n * calls for (name, _), n in counts.last.items() if name == process)
        is_graceful = world.was_graceful() and process not in world.fleet.ungraceful
        least = returned if is_graceful and process not in killed else returned - late
        if not least <= counted <= returned:
            yield f"{process} counts {counted:.0f} records, and processed {returned}"


def failures_are_counted(world: World) -> Iterator[str]:
    """A worker counts each call that raised, once.

    But for a coroutine that is cancelled, or a loop that is left, as the shard is being left.
    """
    raised: dict[str, list[bool]] = defaultdict(list)
    for entry in world.journal.entries:
        if entry.what == "raised" and entry.about[0] == "records":
            raised[entry.process].append(entry.about[1] != "CancelledError")
    is_sure = world.history.way != "loop"
    killed = {process.name for process in world.fleet.started_at if process.is_killed}
    for process in sorted(world.counts.tallies):
        counted, calls = world.counts.sum(process, "batches.failed"), raised[process]
        least = sum(calls) if is_sure and process not in killed else 0
        if not least <= counted <= len(calls):
            yield f"{process} counts {counted:.0f} failures, and {len(calls)} calls raised"


COUNTING = (records_are_counted, failures_are_counted)
