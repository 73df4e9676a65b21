"""`ExecutorWorker`: runs one worker in a Spark task, linked to the supervisor in the driver."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from sparkinesis.errors import FleetError
from sparkinesis.fleet.channel import (
    Channel,
    ChannelClosedError,
    connect_to_driver,
)
from sparkinesis.fleet.channel_tls import NotAuthenticatedError, WorkerCredentials
from sparkinesis.lease.rules.other_workers import default_worker_id
from sparkinesis.worker.lifecycle.signals import handling
from sparkinesis.worker.reporting.log_context import log_to_stderr
from sparkinesis.worker.supervision.control_messages import (
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ToWorker,
    decode_for_worker,
    encode,
)
from sparkinesis.worker.supervision.hosted_worker import HostedWorker
from sparkinesis.worker.supervision.supervised import Supervised

_log = logging.getLogger(__name__)

RESULT = "slot INT, worker_id STRING, records BIGINT, error STRING"
"""The schema of the row that a task returns."""
_ROW = pa.schema(
    {"slot": pa.int32(), "worker_id": pa.string(), "records": pa.int64(), "error": pa.string()}
)
"""The same schema for Arrow."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that shut a worker down. PySpark's daemon sends SIGHUP when the executor has died."""


@dataclass(frozen=True)
class WorkerSpec:
    """The settings of a fleet's workers, which are sent in the closure of a Spark task."""

    supervised: Supervised[Any]
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


class ExecutorWorker(HostedWorker):
    """One worker of a fleet, in a Spark task. Its supervisor is in the driver, over the network."""

    _link: DriverLink

    def __init__(self, spec: WorkerSpec, job: int, slot: int, task: SparkTask) -> None:
        self._spec = spec
        rng = random.Random(random.SystemRandom().getrandbits(64))  # noqa: S311 - no secret
        host, pid = socket.gethostname(), os.getpid()
        worker_id = default_worker_id(host, pid, rng)
        super().__init__(spec.supervised, worker_id, spec.heartbeat_interval)
        self._hello = Hello(
            worker_id, slot, job, task.attempt, host, pid, task.stage_id, task.attempt_id
        )
        self._link = DriverLink(
            spec.host,
            spec.port,
            spec.credentials,
            self._current_hello,
            self._events.put,
            lost_after=spec.lost_after,
        )

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
                f"A worker of {self._spec.supervised.name!r} on {self._hello.host} cannot connect "
                f"to its driver: {error} Executors have to reach the driver, which with Spark "
                "Connect is the client: set host, bind and port of FleetOptions if a firewall or "
                "another network is in between."
            ) from None
        try:
            ended = self.work()
            self._link.send_last(lambda: ended)
        finally:
            self._link.close()
        if not self._link.has_answer:
            raise FleetError(
                f"A worker of {self._spec.supervised.name!r} on {self._hello.host} connected to "
                "its driver but received no message until its end. The driver may not know of the "
                "worker: Spark runs its task again."
            )
        return ended

    def _current_hello(self) -> Hello:
        is_leaving = self._is_leaving or self._shutdown_within is not None
        return msgspec.structs.replace(
            self._hello, is_running=self._is_started, is_leaving=is_leaving
        )


class DriverLink:
    """The connection of a worker to its driver, from `open` to `close`.

    It reads in a thread of its own; its methods are for one other thread. It reconnects when the
    connection breaks. Messages that are sent meanwhile are lost, except for the last `Leaving`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        credentials: WorkerCredentials,
        hello: Callable[[], Hello],
        on_message: Callable[[ToWorker], None],
        *,
        lost_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dial = functools.partial(connect_to_driver, host, port, credentials)
        self._hello = hello
        self._on_message = on_message
        self._lost_after = lost_after
        self._clock = clock
        self._heard = clock()
        self._channel: Channel | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driver-link", daemon=True)
        self._leaving: Leaving | None = None
        self.connections = 0
        """The number of connections made so far. The last messages on earlier ones may be lost."""
        self.has_answer = False
        """True once the driver has sent a message, and so has read a `Hello`."""

    def open(self) -> None:
        """Connect; retry for ``lost_after`` seconds.

        Raises `ChannelClosedError` if the driver cannot be reached, `NotAuthenticatedError` if the
        server is not this run's driver.
        """
        until = self._clock() + self._lost_after
        while True:
            try:
                self._connect()
            except ChannelClosedError:
                if self._clock() >= until:
                    raise
                self._closing.wait(self._pause)
            else:
                break
        self._thread.start()

    def why_lost(self) -> str | None:
        """The reason to do without the driver: silence for ``lost_after`` seconds; else None."""
        silent_for = self._clock() - self._heard
        if silent_for < self._lost_after:
            return None
        return f"the driver is lost, without a message for {silent_for:.1f} s"

    def send(self, message: Report | Leaving | Ended) -> bool:
        """Send a message if there is a connection; return True if it was sent."""
        if isinstance(message, Leaving):
            self._leaving = message
        channel = self._channel
        if channel is None:
            return False
        # The reading thread notices a broken connection too, and reconnects.
        with contextlib.suppress(ChannelClosedError):
            channel.send(encode(message))
            return True
        return False

    def send_last(self, message: Callable[[], Report | Ended]) -> None:
        """Send a message as soon as there is a connection, unless the driver is lost.

        message: makes it, for each try: a new connection may need more.
        """
        while not self.send(message()) and self.why_lost() is None:
            self._closing.wait(self._pause)

    def close(self) -> None:
        self._closing.set()
        if self._channel is not None:
            self._channel.close()

    @property
    def _pause(self) -> float:
        """Seconds between two attempts to connect."""
        return min(1.0, self._lost_after / 10)

    def _connect(self) -> None:
        channel = self._dial()
        channel.send(encode(self._hello()))
        sent = self._leaving
        if sent is not None:
            channel.send(encode(sent))
        self._heard = self._clock()
        self.connections += 1
        self._channel = channel
        current = self._leaving
        if current is not None and current is not sent:
            self.send(current)  # set by another thread before there was a connection
        if self._closing.is_set():
            channel.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._channel is not None:
                self._read(self._channel)
                self._channel = None
                continue
            try:
                self._connect()
            except (ChannelClosedError, NotAuthenticatedError):
                self._closing.wait(self._pause)

    def _read(self, channel: Channel) -> None:
        try:
            while True:
                message = decode_for_worker(channel.receive())
                self._heard = self._clock()
                self.has_answer = True
                if not isinstance(message, Ping):
                    self._on_message(message)
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError):
            channel.close()
