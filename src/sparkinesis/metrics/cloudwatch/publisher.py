"""Publishes measurements every few seconds, in a thread of its own."""

# What holds when CloudWatch throttles, fails or hangs: records are processed at the same pace,
# nothing counts twice, memory is bounded, and a worker ends within seconds. So nobody waits for a
# call:
#
# - A measurement goes into `SeriesBuffer`, which has one statistic set for each series, however
#   many measurements there are. Its lock is held for an addition, never for a call.
# - A flush moves these sets to `UnsentPoints`, under the minute of the flush. CloudWatch keeps a
#   value for each minute, so sets of one minute merge: an hour without CloudWatch leaves 60 points
#   of each series, whatever the interval. Beyond `most`, the oldest are dropped, and counted.
# - Points that the target surely did not take go back, with their minute. Points that it may have
#   taken do not: PutMetricData adds up what it gets, so to repeat a call whose answer was lost
#   could count its records twice, and an alarm on a sum would be wrong. A gap is the lesser evil.
# - A flush ends with its first failed call: the next one would fail too, and each may take seconds.
# - `close` waits for `close_within`, and then gives the rest up. The thread is a daemon, so a call
#   that never returns does not keep the process.
#
# Measured with a CloudWatch that throttled, answered 500 or never answered for three minutes:
# neither the pace of a worker nor its lag changed (docs/benchmarks.md, "CloudWatch fails").

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from sparkinesis.metrics.cloudwatch.data import (
    Datum,
    PublishedMetrics,
    StatisticSet,
    data_of,
    is_published,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import GaugeReaders, Labels

_log = logging.getLogger(__name__)

MOST_DATA = 1000
"""Data that one PutMetricData may have (API reference)."""
MOST_BYTES = 900_000
"""A request may have 1 MB; the rest is for what surrounds the data."""


class Point(NamedTuple):
    """A datum and its values in one minute."""

    minute: int
    """Minutes since the epoch."""
    datum: Datum
    values: StatisticSet


class UnsentPoints:
    """The points that wait for a call. Values of the same datum and minute become one set.

    most: the points that are held; beyond them, the oldest are dropped, and counted in ``dropped``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._minutes: dict[int, dict[Datum, StatisticSet]] = {}
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def put(self, minute: int, datum: Datum, values: StatisticSet) -> None:
        """Add values of a datum in a minute."""
        data = self._minutes.setdefault(minute, {})
        found = data.get(datum)
        if found is not None:
            found.merge(values)
            return
        data[datum] = values
        self._count += 1
        if self._count > self._most:
            self._drop_oldest()

    def take(self, most: int = MOST_DATA, most_bytes: int = MOST_BYTES) -> list[Point]:
        """Remove and return the oldest points, as many as one request may have."""
        taken: list[Point] = []
        size = 0
        for minute in sorted(self._minutes):
            data = self._minutes[minute]
            while data and len(taken) < most:
                datum = next(iter(data))
                size += size_of(datum)
                if taken and size > most_bytes:
                    return taken
                taken.append(Point(minute, datum, data.pop(datum)))
                self._count -= 1
            if data:
                return taken
            del self._minutes[minute]
        return taken

    def give_back(self, points: Iterable[Point]) -> None:
        """Put back points that were surely not published."""
        for point in points:
            self.put(*point)

    def _drop_oldest(self) -> None:
        oldest = min(self._minutes)
        data = self._minutes[oldest]
        del data[next(iter(data))]
        if not data:
            del self._minutes[oldest]
        self._count -= 1
        self.dropped += 1


def size_of(datum: Datum) -> int:
    """Return the bytes of a datum in a request, at most.

    That is for the longest form of a request, in which botocore before 1.40 makes it: each field
    has its whole path, and characters are escaped.
    """
    texts = sum(len(name) + len(value) for name, value in datum.dimensions)
    return 600 + 120 * len(datum.dimensions) + 3 * (texts + len(datum.name) + len(datum.unit))


class Fate(Enum):
    """The fate of points that were sent."""

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
        """Take a value of a metric. For any thread; never waits for a call."""
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
        self._selection = selection
        self._flush_every = flush_every
        self._close_within = close_within
        self._wall_clock = wall_clock
        self._measured = SeriesBuffer(selection, most)
        self._gauges = GaugeReaders()
        self.add = self.observe = self._measured.take
        self.watch = self._gauges.add
        self._sender = Sender(target, most)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Publisher:
        """Begin to publish in the background."""
        self._thread = threading.Thread(
            target=self._run, name=f"sparkinesis-metrics-{self._sender.to}", daemon=True
        )
        self._thread.start()
        return self

    @property
    def dropped(self) -> int:
        """The points and measurements that were dropped: statistics of a minute each, at most."""
        return self._measured.dropped + self._sender.unsent.dropped + self._sender.lost

    @property
    def held(self) -> int:
        """The points that are not published yet."""
        return len(self._sender.unsent)

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
                self._sender.to,
                self._close_within,
            )

    def flush(self) -> None:
        """Publish what was measured until now, and what an earlier flush has left."""
        minute = int(self._wall_clock() // 60)
        for sample in self._gauges():
            self._measured.take(*sample)
        for (metric, labels), values in self._measured.drain().items():
            for datum, published in data_of(metric, labels, values, self._selection):
                self._sender.unsent.put(minute, datum, published)
        self._sender.send()
        if self._measured.dropped:
            self._sender.log_dropped()

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._flush_every):
                self._flush_safely()
            self._flush_safely()
        finally:
            self._sender.end(self.dropped + self.held)

    def _flush_safely(self) -> None:
        try:
            self.flush()
        except Exception as error:  # noqa: BLE001 - the thread lives on; processing is not affected
            problem = f"{type(error).__name__}: {error}"
            self._sender.log(Sent(Fate.LOST, problem, type(error).__name__), error)


class Sender:
    """Sends points to a target, keeps those that it did not take, and logs why. For one thread."""

    def __init__(self, target: Target, most: int) -> None:
        self._target = target
        self.to = target.name
        """The target's name."""
        self.unsent = UnsentPoints(most)
        self.lost = 0
        """The points that were sent, and perhaps not published."""
        self._logged: set[str] = set()
        """The kinds of problems that were logged."""

    def send(self) -> None:
        """Send the unsent points, the oldest first, until the target no longer takes them."""
        while points := self.unsent.take():
            try:
                sent = self._target.send(points)
            except Exception:
                self.lost += len(points)
                raise
            if sent.fate is Fate.KEPT:
                self.unsent.give_back(points)
            elif sent.fate is not Fate.PUBLISHED:
                self.lost += len(points)
            if sent.problem:
                self.log(sent)
            if sent.fate in (Fate.KEPT, Fate.LOST):
                break
        if self.unsent.dropped:
            self.log_dropped()

    def log(self, sent: Sent, error: Exception | None = None) -> None:
        """Log a problem, each kind of problem once."""
        if sent.kind in self._logged:
            return
        self._logged.add(sent.kind)
        _log.warning(
            "%s does not take metrics: %s. %s Records are processed as before. Further errors of "
            "this kind are not logged.",
            self.to,
            sent.problem.rstrip("."),
            _CONSEQUENCES[sent.fate],
            exc_info=error,
        )

    def log_dropped(self) -> None:
        """Log, once, that points or measurements are dropped."""
        if "room" in self._logged:
            return
        self._logged.add("room")
        _log.warning(
            "Metrics for %s are dropped, the oldest first: more than max_series wait to be "
            "published. The number is logged at the end.",
            self.to,
        )

    def end(self, unpublished: int) -> None:
        """Log how many statistics were never published, and close the target."""
        if unpublished:
            _log.warning(
                "%s: %d statistics of metrics were not published in the end.",
                self.to,
                unpublished,
            )
        try:
            self._target.close()
        except Exception:  # noqa: BLE001 - the process is ending
            _log.debug("%s could not be closed.", self.to, exc_info=True)


_CONSEQUENCES = {
    Fate.PUBLISHED: "",
    Fate.KEPT: "They are kept, and sent again.",
    Fate.LOST: "They may have arrived, and are not sent again, so that nothing counts twice.",
    Fate.INVALID: "They are dropped.",
}
