"""`HostedWorker`: runs one worker for a supervisor of several, and reports on it."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Protocol

from sparkinesis.errors import ServiceError, SparkinesisError
from sparkinesis.metrics.tally import Series, Tally
from sparkinesis.status import Failure, StreamStatus
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.supervision.control_messages import (
    Ended,
    Leaving,
    Report,
    ShutDown,
    Start,
    Wait,
)
from sparkinesis.worker.supervision.supervised import ReadsShards, Supervised, SupervisedWorker

_log = logging.getLogger(__name__)

_SERIES_EVERY = 5.0
"""Seconds between two reports with metrics: shorter than Prometheus' usual intervals."""

MOST = 200
"""The most unread shards that one report lists."""


class Link(Protocol):
    """The connection to the worker's supervisor. For one thread."""

    connections: int
    """The number of connections so far. The last messages on earlier ones may be lost."""

    def why_lost(self) -> str | None:
        """The reason why the worker has to do without a supervisor; None if it has one."""

    def send(self, message: Report | Leaving | Ended) -> bool:
        """Send a message if that is possible now; return True if it was sent."""

    def send_last(self, message: Callable[[], Report | Ended]) -> None:
        """Send a message as soon as that is possible, unless the supervisor is lost."""


class HostedWorker:
    """One worker of several. `work` handles all events in its thread; other threads queue them.

    A subclass knows the supervisor, and sets ``_link``.
    """

    _link: Link

    def __init__(self, supervised: Supervised[Any], worker_id: str, interval: float) -> None:
        """``interval``: seconds between two reports."""
        self._supervised = supervised
        self._worker_id = worker_id
        self._interval = interval
        # SimpleQueue, because signal handlers put into it.
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        """Orders of the supervisor, and functions for the worker's thread to call."""
        self._log_place = LogPlace(supervised.name, worker_id)
        self._reporter = Reporter(None if supervised.http is None else Tally())
        self._start: WorkerStart | None = None
        """The last start of the worker; None before the first."""
        self._worker: SupervisedWorker | None = None
        """The worker, from the end of its start on."""
        self._shutdown_within: float | None = None
        """Seconds for a shutdown, unless a record processor requested it; None: no request."""
        self._is_leaving = False
        self.failure: BaseException | None = None
        """The error that ended the worker, or kept it from starting."""

    def work(self) -> Ended:
        """Handle events until the worker has ended. Always leaves the worker shutting down."""
        try:
            return self._work()
        finally:
            if self._start is not None and self._start.worker is not None:
                # Also after an error: the process may live on, and the worker would keep running.
                self._start.worker.request_shutdown()

    def _work(self) -> Ended:
        next_report = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=max(0.0, next_report - time.monotonic()))
                ended = self._handle(event)
                if ended is not None:
                    return ended
                continue
            if self._start is not None and self._start.takes_too_long:
                _log.warning("The worker was still starting when the shutdown's time was up")
                return Ended(False)
            next_report = time.monotonic() + self._interval
            self._link.send(self._report())
            ended = self._look_at_supervisor()
            if ended is not None:
                return ended
            self._report_shutdown_request()

    def _look_at_supervisor(self) -> Ended | None:
        """Shut down if the supervisor is lost."""
        why = self._link.why_lost()
        if why is None or self._shutdown_within is not None:
            return None
        _log.warning("Shutting down gracefully: %s", why)
        return self._leave(why)

    def _handle(self, event: object) -> Ended | None:
        """Handle an order, or call a function of another thread; return how the worker ended."""
        match event:
            case Start():
                if not self._is_started and self._shutdown_within is None:
                    self._begin()
                return None
            case Wait():
                return None  # until it has to start
            case ShutDown(timeout):
                _log.info("The supervisor requests a shutdown within %g s", timeout)
                return self._shut_down(timeout)
        assert callable(event)
        ended = event()
        assert ended is None or isinstance(ended, Ended)
        return ended

    @property
    def _is_started(self) -> bool:
        """True if the worker starts, or runs."""
        return self._worker is not None or (self._start is not None and not self._start.is_over)

    def _begin(self) -> None:
        """Start the worker in a thread: starting makes calls, and reports must continue."""
        start = self._start = WorkerStart(self._new_worker)

        def run() -> None:
            try:
                worker = start.run()
            except BaseException as error:  # noqa: BLE001 - reported to the supervisor
                self._events.put(functools.partial(self._start_failed, error))
            else:
                self._events.put(functools.partial(self._started, worker))

        threading.Thread(
            target=self._log_place.run, args=(run,), name="start-worker", daemon=True
        ).start()

    def _new_worker(self) -> SupervisedWorker:
        return self._supervised.worker(self._worker_id, self._reporter.tally, self._interval)

    def _start_failed(self, error: BaseException) -> Ended | None:
        self._end_start()
        self.failure = error
        trace = None if isinstance(error, SparkinesisError) else error
        _log.error("The worker failed to start: %s", error, exc_info=trace)
        return Ended(False, describe(error), isinstance(error, ServiceError))

    def _end_start(self) -> None:
        assert self._start is not None
        self._start.is_over = True

    def _started(self, worker: SupervisedWorker) -> None:
        self._end_start()
        self._worker = worker

        def wait() -> None:
            with contextlib.suppress(BaseException):  # read from `worker.failure` when reported
                worker.wait()
            self._events.put(self._worker_ended)

        threading.Thread(target=wait, name="wait-for-worker", daemon=True).start()
        if self._shutdown_within is not None:
            worker.request_shutdown(self._shutdown_within)

    def _leave(self, why: str) -> Ended | None:
        """Shut down on the worker's own initiative, and report why."""
        if not self._is_leaving:
            self._is_leaving = True
            self._link.send(Leaving(why))
        return self._shut_down(self._supervised.shutdown_within)

    def _shut_down(self, timeout: float) -> Ended | None:
        """Begin a shutdown; of several, the one that ends first counts."""
        self._shutdown_within = timeout
        if self._worker is not None:
            self._worker.request_shutdown(timeout)
            return None
        if self._start is None or self._start.is_over:
            return Ended(True)
        self._start.shut_down(timeout)
        return None

    def _report_shutdown_request(self) -> None:
        """Report a record processor's request to shut down the application, and shut down.

        A failed worker shuts down too.
        """
        worker = self._worker
        if worker is None or self._shutdown_within is not None or not worker.is_shutting_down:
            return
        if worker.failure is None:
            self._is_leaving = True
            self._link.send(Leaving("a record processor requested it", is_for_all=True))
        self._shut_down(self._supervised.shutdown_within)

    def _worker_ended(self) -> Ended:
        assert self._worker is not None
        self._report_shutdown_request()
        # This is the last report, so it must arrive: the supervisor keeps its figures.
        self._link.send_last(lambda: self._report(is_last=True))
        error = self.failure = self._worker.failure
        if error is None:
            return Ended(self._worker.was_graceful)
        # A worker that took its place would spend another delivery of the same records.
        is_for_all = not (self._supervised.has_shards or isinstance(error, ServiceError))
        return Ended(self._worker.was_graceful, describe(error), is_for_all=is_for_all)

    def _report(self, *, is_last: bool = False) -> Report:
        if self._worker is None:
            return Report((), 0)
        return self._reporter.report(self._worker, self._link.connections, is_last=is_last)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._events.put(functools.partial(self._signalled, signal.Signals(number).name))

    def _signalled(self, name: str) -> Ended | None:
        _log.warning("Received %s: shutting down gracefully", name)
        return self._leave(f"it received {name}")


class WorkerStart:
    """One start of a worker, in a thread of its own, and its end if the worker is no longer wanted.

    make: returns a worker that has not started.
    """

    def __init__(self, make: Callable[[], SupervisedWorker]) -> None:
        self._make = make
        self.worker: SupervisedWorker | None = None
        """The worker, from before its start."""
        self.is_over = False
        """True once the worker runs, or has failed to start."""
        self._is_unwanted = threading.Event()
        self._within = math.inf
        """Seconds for the shutdown of a worker that is unwanted."""
        self._give_up_at = math.inf

    def run(self) -> SupervisedWorker:
        """Make the worker, and start it. Raises its errors."""
        worker = self.worker = self._make()
        if self._is_unwanted.is_set():
            worker.request_shutdown(self._within)
        worker.start()
        return worker

    def shut_down(self, within: float) -> None:
        """Shut the worker down within some seconds, as soon as it is made."""
        self._within = within
        self._is_unwanted.set()
        if self.worker is not None:
            self.worker.request_shutdown(within)
        self._give_up_at = min(self._give_up_at, time.monotonic() + within)

    @property
    def takes_too_long(self) -> bool:
        """True if the worker is still starting when the time of a shutdown is up."""
        return not self.is_over and time.monotonic() >= self._give_up_at


class Reporter:
    """Makes the reports on a worker, each with what is new to its supervisor.

    It knows what was reported on this connection; reports on earlier ones may be lost.

    tally: has the worker's metrics; None: they and its health are not reported.
    """

    def __init__(self, tally: Tally | None) -> None:
        self.tally = tally
        self._series_due = -math.inf
        """The time from which a report has the worker's metrics."""
        self._connection = 0
        self._counts: dict[str, int] = {}
        """The reported count of each failure, by fingerprint."""
        self._streams: list[tuple[str, str | None, str | None]] | None = []
        """The streams as reported; None: they are not reported yet."""

    def report(self, worker: SupervisedWorker, connection: int, *, is_last: bool = False) -> Report:
        """Return the next report. ``connection``: the number of connections so far."""
        if connection != self._connection:
            if self._connection:
                self._counts, self._streams = {}, None
            self._connection = connection
        worker.look_at_health()
        is_watched = self.tally is not None
        shards = worker if isinstance(worker, ReadsShards) else None
        return Report(
            () if shards is None else tuple(shards.status()),
            worker.records_total(),
            True,
            self._new_failures(worker),
            None if shards is None else shards.problem,
            None if shards is None else longest(shards.unread_shards()),
            None if shards is None else self._new_streams(shards),
            worker.why_not_live() if is_watched else (),
            worker.why_not_ready() if is_watched else (),
            self._series(is_last),
        )

    def _series(self, is_last: bool) -> tuple[Series, ...] | None:
        now = time.monotonic()
        if self.tally is None or (now < self._series_due and not is_last):
            return None
        self._series_due = now + _SERIES_EVERY
        return tuple(self.tally.series())

    def _new_failures(self, worker: SupervisedWorker) -> tuple[Failure, ...]:
        found = tuple(
            failure
            for failure in worker.failures()
            if failure.count != self._counts.get(failure.fingerprint)
        )
        self._counts.update((failure.fingerprint, failure.count) for failure in found)
        return found

    def _new_streams(self, worker: ReadsShards) -> tuple[StreamStatus, ...] | None:
        streams = worker.streams()
        # Without the seconds of a failure, which the supervisor counts itself.
        reported = [(one.stream, one.identifier, one.problem) for one in streams]
        if reported == self._streams:
            return None
        self._streams = reported
        return streams


def longest(unread: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return the shards that have been unread for longest, at most `MOST`, by lease key.

    None for None.
    """
    if unread is None:
        return None
    return dict(sorted(unread.items(), key=lambda each: (-each[1], each[0]))[:MOST])
