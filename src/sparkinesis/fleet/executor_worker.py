"""`ExecutorWorker`: runs one worker in a Spark task, controlled by the fleet's driver."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import queue
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TypeAlias

import msgspec
import pyarrow as pa

from sparkinesis.errors import FleetError, ServiceError, SparkinesisError
from sparkinesis.fleet.channel.channel import ChannelClosedError
from sparkinesis.fleet.channel.driver_link import DriverLink
from sparkinesis.fleet.channel.messages import (
    Ended,
    Hello,
    Leaving,
    Report,
    ShutDown,
    Start,
    ToWorker,
)
from sparkinesis.fleet.channel.tls import NotAuthenticatedError, WorkerCredentials
from sparkinesis.fleet.reporter import Reporter
from sparkinesis.lease.rules.worker_ids import default_worker_id
from sparkinesis.metrics.tally import Tally
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.signals import handling
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.new_worker import new_worker
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace, log_to_stderr

_log = logging.getLogger(__name__)

RESULT = "slot INT, worker_id STRING, records BIGINT, error STRING"
"""The schema of the row that a task returns."""
_ROW = pa.schema(
    {"slot": pa.int32(), "worker_id": pa.string(), "records": pa.int64(), "error": pa.string()}
)
"""The same, for Arrow."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that shut a worker down. PySpark's daemon sends SIGHUP when the executor has died."""


@dataclass(frozen=True)
class WorkerSpec:
    """The settings of a fleet's workers, which are sent in the closure of a Spark task."""

    application: ApplicationSettings
    host: str
    port: int
    credentials: WorkerCredentials = field(repr=False)
    heartbeat_interval: float
    lost_after: float
    log_level: int | str


@dataclass(frozen=True, slots=True)
class SparkTask:
    """The ids of the Spark task that a worker runs in."""

    stage_id: int
    attempt_id: int
    """Spark's id of the task attempt, unique in the Spark application."""
    attempt: int
    """The number of the attempt of this task, from 0."""


def task_function(
    spec: WorkerSpec, job: int, slots: Sequence[int], this_task: Callable[[], SparkTask]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a job's tasks for ``mapInArrow``; a task's row is an index of slots.

    this_task: called within a task, returns its ids.
    """

    def host_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for index in [index for batch in batches for index in batch.column(0).to_pylist()]:
            yield ExecutorWorker(spec, job, slots[index], this_task()).run()

    return host_worker


_Event: TypeAlias = ToWorker | Callable[[], "Ended | None"]
"""A message of the driver, or what the worker's thread has to call; None: the worker goes on."""


class ExecutorWorker:
    """One worker of a fleet. `run` handles all events in its thread; other threads queue them."""

    def __init__(self, spec: WorkerSpec, job: int, slot: int, task: SparkTask) -> None:
        self._spec = spec
        rng = random.Random(random.SystemRandom().getrandbits(64))  # noqa: S311 - no secret
        host, pid = socket.gethostname(), os.getpid()
        self._worker_id = default_worker_id(host, pid, rng)
        self._hello = Hello(
            self._worker_id, slot, job, task.attempt, host, pid, task.stage_id, task.attempt_id
        )
        # SimpleQueue, because signal handlers put into it.
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._link = DriverLink(
            spec.host,
            spec.port,
            spec.credentials,
            self._current_hello,
            self._events.put,
            lost_after=spec.lost_after,
        )
        self._log_place = LogPlace(spec.application.name, self._worker_id)
        self._tally = None if spec.application.options.http is None else Tally()
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

    def run(self) -> pa.RecordBatch:
        """Run the worker until it ends; return the task's row.

        Raises `FleetError` if the driver cannot be reached at first, or has never sent a message.
        Then the driver may not know of the worker nor of its end: Spark has to run the task again.
        """
        with log_to_stderr(self._spec.log_level), handling(_SIGNALS, self._on_signal):
            ended = self._log_place.run(self._work_for_driver)
        records = self._worker.records_total() if self._worker is not None else 0
        row = (self._hello.slot, self._worker_id, records, ended.error)
        return pa.RecordBatch.from_pylist([dict(zip(_ROW.names, row, strict=True))], schema=_ROW)

    def _work_for_driver(self) -> Ended:
        try:
            self._link.open()
        except (ChannelClosedError, NotAuthenticatedError) as error:
            raise FleetError(
                f"A worker of {self._spec.application.name!r} on {self._hello.host} cannot connect "
                f"to its driver: {error} Executors have to reach the driver, which with Spark "
                "Connect is the client: set host, bind and port of FleetOptions if a firewall or "
                "another network is in between."
            ) from None
        try:
            ended = self._work()
            self._link.send_last(lambda: ended)
        finally:
            self._link.close()
            if self._built_worker is not None:
                # Also after an error: Spark reuses the process, and the worker would keep running.
                self._built_worker.request_shutdown()
        if not self._link.has_answer:
            raise FleetError(
                f"A worker of {self._spec.application.name!r} on {self._hello.host} connected to "
                "its driver but received no message until its end. The driver may not know of the "
                "worker: Spark runs its task again."
            )
        return ended

    def _current_hello(self) -> Hello:
        is_running = self._is_starting or self._worker is not None
        is_leaving = self._is_leaving or self._shutdown_within is not None
        return msgspec.structs.replace(self._hello, is_running=is_running, is_leaving=is_leaving)

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
            next_report = time.monotonic() + self._spec.heartbeat_interval
            self._link.send(self._report())
            if self._link.is_lost and self._shutdown_within is None:
                _log.warning(
                    "No message from the driver for %.1f s: shutting down gracefully",
                    self._link.silent_for,
                )
                ended = self._leave("the driver is lost")
                if ended is not None:
                    return ended
            self._report_shutdown_request()

    def _handle(self, event: _Event) -> Ended | None:
        match event:
            case Start():
                if not self._is_starting and self._worker is None and self._shutdown_within is None:
                    self._start()
            case ShutDown(timeout):
                _log.info("The driver requests a shutdown within %g s", timeout)
                return self._shut_down(timeout)
        return event() if callable(event) else None

    def _start(self) -> None:
        """Start the worker in a thread: starting makes calls, and heartbeats must continue."""
        self._is_starting = True

        def start() -> None:
            try:
                # Validates again: this machine may lack the region that the driver found.
                application = self._spec.application
                # The driver tells the health of all workers.
                options = replace(application.options, http=None)
                application = replace(application, worker_id=self._worker_id, options=options)
                worker = self._built_worker = new_worker(
                    application, tally=self._tally, look_every=self._spec.heartbeat_interval
                )
                if self._stop_starting.is_set():
                    worker.request_shutdown(self._shutdown_within)
                worker.start()
            except BaseException as error:  # noqa: BLE001 - reported to the driver
                self._events.put(functools.partial(self._start_failed, error))
            else:
                self._events.put(functools.partial(self._started, worker))

        threading.Thread(
            target=self._log_place.run, args=(start,), name="start-worker", daemon=True
        ).start()

    def _start_failed(self, error: BaseException) -> Ended:
        self._is_starting = False
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
        return self._shut_down(self._spec.application.options.shutdown_timeout)

    def _shut_down(self, timeout: float) -> Ended | None:
        again = self._shutdown_within is not None
        self._shutdown_within = timeout
        if self._worker is None:
            if not self._is_starting:
                return Ended(True)
            self._stop_starting.set()
            if self._built_worker is not None:
                self._built_worker.request_shutdown(timeout)
            self._give_up_at = min(self._give_up_at, time.monotonic() + timeout)
        elif not again:
            self._worker.request_shutdown(timeout)
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
        self._shut_down(self._spec.application.options.shutdown_timeout)

    def _worker_ended(self) -> Ended:
        assert self._worker is not None
        self._report_shutdown_request()
        # Nothing follows that would make up for it: the driver keeps what it tells.
        self._link.send_last(lambda: self._report(is_last=True))
        error = self._worker.failure
        return Ended(self._worker.was_graceful, None if error is None else describe(error))

    def _report(self, *, is_last: bool = False) -> Report:
        if self._worker is None:
            return Report((), 0)
        return self._reporter.report(self._worker, self._link.connections, is_last=is_last)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._events.put(functools.partial(self._signalled, signal.Signals(number).name))

    def _signalled(self, name: str) -> Ended | None:
        _log.warning("Received %s: shutting down gracefully", name)
        return self._leave(f"it received {name}, as when its executor dies")
