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
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Protocol

from sparkinesis.errors import ServiceError, SparkinesisError
from sparkinesis.metrics.tally import Tally
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.new_worker import new_worker
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.supervision.messages import Ended, Leaving, Report, ShutDown, Start, Wait
from sparkinesis.worker.supervision.reporter import Reporter

_log = logging.getLogger(__name__)


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

    def __init__(self, application: ApplicationSettings, worker_id: str, interval: float) -> None:
        """``interval``: seconds between two reports."""
        self._application = application
        self._worker_id = worker_id
        self._interval = interval
        # SimpleQueue, because signal handlers put into it.
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()
        """Orders of the supervisor, and functions for the worker's thread to call."""
        self._log_place = LogPlace(application.name, worker_id)
        self._tally = None if application.options.http is None else Tally()
        self._reporter = Reporter(self._tally)
        self._worker: Worker | None = None
        self._is_starting = False
        self._built_worker: Worker | None = None
        """The worker, from before its start."""
        self._stop_starting = threading.Event()
        self._give_up_at = math.inf
        """The time at which a shutdown gives up on a worker that is still starting."""
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
            if self._built_worker is not None:
                # Also after an error: the process may live on, and the worker would keep running.
                self._built_worker.request_shutdown()

    def _work(self) -> Ended:
        next_report = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=max(0.0, next_report - time.monotonic()))
                ended = self._handle(event)
                if ended is not None:
                    return ended
                continue
            if self._is_starting and time.monotonic() >= self._give_up_at:
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
        """Handle an order, or what another thread wants to be called; return how it ended."""
        match event:
            case Start():
                if not self._is_starting and self._worker is None and self._shutdown_within is None:
                    self._start()
                return None
            case Wait():
                return None  # until it is told to start
            case ShutDown(timeout):
                _log.info("The supervisor requests a shutdown within %g s", timeout)
                return self._shut_down(timeout)
        assert callable(event)
        ended = event()
        assert ended is None or isinstance(ended, Ended)
        return ended

    def _start(self) -> None:
        """Start the worker in a thread: starting makes calls, and reports must continue."""
        self._is_starting = True

        def start() -> None:
            try:
                # Validates again: this machine may lack the region that the supervisor found.
                application = self._application
                # The supervisor serves the health of all workers.
                options = replace(application.options, http=None)
                application = replace(application, worker_id=self._worker_id, options=options)
                worker = self._built_worker = new_worker(
                    application, tally=self._tally, look_every=self._interval
                )
                if self._stop_starting.is_set():
                    worker.request_shutdown(self._shutdown_within)
                worker.start()
            except BaseException as error:  # noqa: BLE001 - reported to the supervisor
                self._events.put(functools.partial(self._start_failed, error))
            else:
                self._events.put(functools.partial(self._started, worker))

        threading.Thread(
            target=self._log_place.run, args=(start,), name="start-worker", daemon=True
        ).start()

    def _start_failed(self, error: BaseException) -> Ended | None:
        self._is_starting = False
        self.failure = error
        trace = None if isinstance(error, SparkinesisError) else error
        _log.error("The worker failed to start: %s", error, exc_info=trace)
        return Ended(False, describe(error), isinstance(error, ServiceError))

    def _started(self, worker: Worker) -> None:
        self._is_starting = False
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
        return self._shut_down(self._application.options.shutdown_timeout)

    def _shut_down(self, timeout: float) -> Ended | None:
        """Begin a shutdown; of several, the one that ends first counts."""
        self._shutdown_within = timeout
        if self._worker is not None:
            self._worker.request_shutdown(timeout)
            return None
        if not self._is_starting:
            return Ended(True)
        self._stop_starting.set()
        if self._built_worker is not None:
            self._built_worker.request_shutdown(timeout)
        self._give_up_at = min(self._give_up_at, time.monotonic() + timeout)
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
        self._shut_down(self._application.options.shutdown_timeout)

    def _worker_ended(self) -> Ended:
        assert self._worker is not None
        self._report_shutdown_request()
        # This is the last report, so it must arrive: the supervisor keeps its figures.
        self._link.send_last(lambda: self._report(is_last=True))
        error = self.failure = self._worker.failure
        return Ended(self._worker.was_graceful, None if error is None else describe(error))

    def _report(self, *, is_last: bool = False) -> Report:
        if self._worker is None:
            return Report((), 0)
        return self._reporter.report(self._worker, self._link.connections, is_last=is_last)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._events.put(functools.partial(self._signalled, signal.Signals(number).name))

    def _signalled(self, name: str) -> Ended | None:
        _log.warning("Received %s: shutting down gracefully", name)
        return self._leave(f"it received {name}")
