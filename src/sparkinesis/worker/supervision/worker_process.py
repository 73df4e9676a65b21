"""The program of a worker process: runs one worker until it ends, or its supervisor does."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from sparkinesis.errors import DuplicateWorkerIdError, ProcessorError
from sparkinesis.lease.rules.other_workers import default_worker_id
from sparkinesis.worker.lifecycle.signals import handling
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import log_to_stderr
from sparkinesis.worker.supervision.control_messages import (
    Ended,
    Hello,
    Ping,
    Raised,
    Report,
    ToSupervisor,
    ToWorker,
    decode_for_worker,
    encode,
)
from sparkinesis.worker.supervision.hosted_worker import HostedWorker
from sparkinesis.worker.supervision.supervised import Supervised

_log = logging.getLogger(__name__)

REPORT_EVERY = 1.0
"""Seconds between two reports."""
KILL_AFTER = 10.0
"""Seconds that a process has to end once the time for its shutdown is up; then it is killed."""


@dataclass(frozen=True)
class ProcessSpec:
    """The arguments of a worker process."""

    pickled: bytes
    """The application. The process unpickles it itself, so that an error names the part."""
    name: str
    defined: str
    """Where its processor or handler has to be defined, for the text of an error."""
    slot: int
    job: int
    log_level: int
    set_up_log: Callable[[], None] | None
    """Sets up the log in place of ``log_level``."""


def run(spec: ProcessSpec, pipe: Connection) -> None:
    """Run the worker of a process; the target of `multiprocessing`. Exits with 1 for an error."""
    # Ctrl-C in a terminal goes to all processes, but only the supervisor acts on it. The signal was
    # blocked until now.
    signal.signal(
        signal.SIGINT, lambda *_: None
    )  # SIG_IGN would pass on to programs that it starts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    link = SupervisorLink(pipe)
    with _logging(spec):
        try:
            supervised = pickle.loads(spec.pickled)  # noqa: S301 - from the process that started this one
        except Exception as error:  # noqa: BLE001 - a user's class may raise anything
            cannot = _cannot_load(spec, error)
            link.send(raised(cannot))
            ended = Ended(False, describe(cannot))
        else:
            worker = ProcessWorker(supervised, spec, link)
            ended = worker.run()
            if worker.failure is not None:
                link.send(raised(worker.failure))
    link.send(ended)
    # A thread of the program may never end, and the process is no longer needed.
    leaving = threading.Timer(KILL_AFTER / 2, os._exit, args=(1 if ended.error else 0,))
    leaving.daemon = True
    leaving.start()
    sys.exit(1 if ended.error else 0)


class ProcessWorker(HostedWorker):
    """One worker of several on this machine. Its supervisor is at the other end of a pipe."""

    _link: SupervisorLink

    def __init__(
        self, supervised: Supervised[Any], spec: ProcessSpec, link: SupervisorLink
    ) -> None:
        host, pid = socket.gethostname(), os.getpid()
        rng = random.Random(random.SystemRandom().getrandbits(64))  # noqa: S311 - no secret
        given = supervised.worker_id
        worker_id = (
            default_worker_id(host, pid, rng) if given is None else f"{given}-{spec.slot + 1}"
        )
        super().__init__(supervised, worker_id, REPORT_EVERY)
        self._link = link
        self._hello = Hello(worker_id, spec.slot, spec.job, 0, host, pid)
        self._patient_until = (
            time.monotonic() + supervised.shutdown_within + supervised.failover_time + KILL_AFTER
        )
        """A worker of this id that was left by a killed supervisor has ended by then."""

    def run(self) -> Ended:
        """Run the worker until it ends."""
        self._link.send(self._hello)
        reading = threading.Thread(
            target=self._log_place.run, args=(self._read,), name="supervisor-link", daemon=True
        )
        reading.start()
        with handling([signal.SIGTERM], self._on_signal):
            return self._log_place.run(self.work)

    def _read(self) -> None:
        self._link.read(self._ordered)
        self._events.put(self._look_at_supervisor)

    def _ordered(self, order: ToWorker) -> None:
        if not isinstance(order, Ping):
            self._events.put(order)

    def _start_failed(self, error: BaseException) -> Ended | None:
        is_taken = isinstance(error, DuplicateWorkerIdError) and self._shutdown_within is None
        if is_taken and time.monotonic() < self._patient_until:
            _log.warning(
                "The worker id %s is taken, perhaps by a worker that shuts down after the end of "
                "its supervisor: trying again",
                self._worker_id,
            )
            self._begin()
            return None
        return super()._start_failed(error)


class SupervisorLink:
    """A worker process' end of the pipe. `read` is for a thread of its own."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._is_lost = False
        self.connections = 1

    def read(self, on_order: Callable[[ToWorker], None]) -> None:
        """Read the supervisor's orders until it has ended."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                on_order(decode_for_worker(self._pipe.recv_bytes()))
        self._is_lost = True

    def why_lost(self) -> str | None:
        return "the supervisor of this process has ended" if self._is_lost else None

    def send(self, message: ToSupervisor) -> bool:
        """Send a message; return False if the supervisor has ended."""
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(encode(message))
            return True
        return False

    def send_last(self, message: Callable[[], Report | Ended]) -> None:
        """Send a message; a pipe is not connected again."""
        self.send(message())


def raised(error: BaseException) -> Raised:
    """Return an error for the supervisor, which raises it again if it can be pickled."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # noqa: S301 - just pickled
    except Exception:  # noqa: BLE001 - any error of any class
        pickled = b""
    return Raised(pickled, describe(error))


def _cannot_load(spec: ProcessSpec, error: Exception) -> ProcessorError:
    return ProcessorError(
        f"A worker process cannot load the application {spec.name!r}: {describe(error)}. The "
        "process imports modules by their names, also the program's main module, without what "
        f'stands below `if __name__ == "__main__":`. Define what it refers to {spec.defined}.'
    )


@contextlib.contextmanager
def _logging(spec: ProcessSpec) -> Iterator[None]:
    """Log to stderr within the block, unless the program's main module has set up logging."""
    if spec.set_up_log is not None:
        spec.set_up_log()
    if logging.getLogger().handlers:
        yield
        return
    with log_to_stderr(spec.log_level):
        yield
