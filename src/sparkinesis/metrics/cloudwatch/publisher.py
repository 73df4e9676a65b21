"""Publishes measurements every few seconds, in a thread of its own."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from sparkinesis.metrics.cloudwatch.names import PublishedMetrics, data_of, is_published
from sparkinesis.metrics.cloudwatch.pending import Pending, Point
from sparkinesis.metrics.cloudwatch.statistic_set import StatisticSet
from sparkinesis.metrics.gauge_readers import GaugeReaders
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Labels

_log = logging.getLogger(__name__)


class Fate(Enum):
    """What became of points that were sent."""

    PUBLISHED = "published"
    KEPT = "kept"
    """Surely not taken, and worth another try: throttled, not reached, not allowed."""
    LOST = "lost"
    """Perhaps taken, so they are not sent again: nothing is counted twice."""
    INVALID = "invalid"
    """Never to be taken."""


class Sent(NamedTuple):
    """The result of sending points. ``problem``: what happened, for people; empty: nothing."""

    fate: Fate
    problem: str = ""
    kind: str = ""
    """Problems of the same kind are logged once."""


class Target(Protocol):
    """The system that keeps the points. Called by the publisher's thread only."""

    name: str

    def send(self, points: Sequence[Point]) -> Sent:
        """Send points. Raises nothing; ends within seconds."""

    def close(self) -> None:
        """Release connections and files."""


class SeriesBuffer:
    """Measurements since the last flush, as statistic sets.

    It grows with kinds of measurements, never with their number. most: the series that it holds at
    most; measurements of further ones are counted in ``dropped``.
    """

    def __init__(self, selection: PublishedMetrics, most: int) -> None:
        self._selection = selection
        self._most = most
        self._lock = threading.Lock()
        self._sets: dict[tuple[Metric, Labels], StatisticSet] = {}
        self.dropped = 0
        """The measurements that found no room."""

    def take(self, metric: Metric, labels: Labels, value: float = 1.0) -> None:
        """Take a value of a metric. For any thread; waits for nobody."""
        if not is_published(metric, self._selection):
            return
        metric.check(labels)
        if not math.isfinite(value):
            return  # CloudWatch refuses the whole call
        if not self._selection.by_shard and "shard" in metric.labels:
            place = metric.labels.index("shard")
            labels = (*labels[:place], "", *labels[place + 1 :])
        key = (metric, labels)
        with self._lock:
            found = self._sets.get(key)
            if found is not None:
                found.add(value)
            elif len(self._sets) < self._most:
                self._sets[key] = StatisticSet.of(value)
            else:
                self.dropped += 1

    def drain(self) -> dict[tuple[Metric, Labels], StatisticSet]:
        """Return what was measured since the last call, and forget it."""
        with self._lock:
            taken, self._sets = self._sets, {}
        return taken


class Publisher:
    """Takes the measurements of a worker, fleet or query, and publishes them. Is a `Metrics`.

    flush_every: seconds. close_within: seconds that `close` takes at most. most: the points that
    are held while the target does not take them. wall_clock: seconds since the epoch.
    """

    def __init__(
        self,
        target: Target,
        selection: PublishedMetrics,
        *,
        flush_every: float,
        close_within: float,
        most: int,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._selection = selection
        self._flush_every = flush_every
        self._close_within = close_within
        self._wall_clock = wall_clock
        self._intake = SeriesBuffer(selection, most)
        self._gauges = GaugeReaders()
        self.add = self.observe = self._intake.take
        self.watch = self._gauges.add
        self._pending = Pending(most)
        self._unpublished = 0
        self._told: set[str] = set()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Publisher:
        """Begin to publish in the background."""
        self._thread = threading.Thread(
            target=self._run, name=f"sparkinesis-metrics-{self._target.name}", daemon=True
        )
        self._thread.start()
        return self

    @property
    def dropped(self) -> int:
        """The points and measurements that were dropped: statistics of a minute each, at most."""
        return self._intake.dropped + self._pending.dropped + self._unpublished

    @property
    def held(self) -> int:
        """The points that are not published yet."""
        return len(self._pending)

    def close(self) -> None:
        """Publish what is left, for ``close_within`` seconds at most, and stop."""
        self._closing.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(self._close_within)
        if thread.is_alive():
            _log.warning(
                "%s did not take the last metrics within %g s; they are given up.",
                self._target.name,
                self._close_within,
            )

    def flush(self) -> None:
        """Publish what was measured until now, and what is left of before."""
        minute = int(self._wall_clock() // 60)
        for sample in self._gauges():
            self._intake.take(*sample)
        for (metric, labels), values in self._intake.drain().items():
            for datum, published in data_of(metric, labels, values, self._selection):
                self._pending.put(minute, datum, published)
        while points := self._pending.take():
            try:
                sent = self._target.send(points)
            except Exception:
                self._unpublished += len(points)
                raise
            if sent.fate is Fate.KEPT:
                self._pending.give_back(points)
            elif sent.fate is not Fate.PUBLISHED:
                self._unpublished += len(points)
            if sent.problem:
                self._tell(sent)
            if sent.fate in (Fate.KEPT, Fate.LOST):
                break  # the next call would fail, too, and each may take seconds
        self._tell_dropped()

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._flush_every):
                self._flush_safely()
            self._flush_safely()
        finally:
            self._end()

    def _flush_safely(self) -> None:
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 - the thread lives on; processing is not affected
            problem = f"{type(error).__name__}: {error}"
            self._tell(Sent(Fate.LOST, problem, type(error).__name__), error)

    def _end(self) -> None:
        left = self.dropped + self.held
        if left:
            _log.warning(
                "%s: %d statistics of metrics were not published in the end.",
                self._target.name,
                left,
            )
        try:
            self._target.close()
        except Exception:  # noqa: BLE001 - the process is ending
            _log.debug("%s could not be closed.", self._target.name, exc_info=True)

    def _tell(self, sent: Sent, error: Exception | None = None) -> None:
        """Log a problem, each kind of problem once."""
        if sent.kind in self._told:
            return
        self._told.add(sent.kind)
        _log.warning(
            "%s does not take metrics: %s. %s Records are processed as before. Further errors of "
            "this kind are not logged.",
            self._target.name,
            sent.problem.rstrip("."),
            _CONSEQUENCES[sent.fate],
            exc_info=error,
        )

    def _tell_dropped(self) -> None:
        if self._intake.dropped + self._pending.dropped and "room" not in self._told:
            self._told.add("room")
            _log.warning(
                "Metrics for %s are dropped, the oldest first: more than max_series wait to be "
                "published. The number is logged at the end.",
                self._target.name,
            )


_CONSEQUENCES = {
    Fate.PUBLISHED: "",
    Fate.KEPT: "They are kept, and sent again.",
    Fate.LOST: "They may have arrived, and are not sent again, so that nothing counts twice.",
    Fate.INVALID: "They are dropped.",
}
