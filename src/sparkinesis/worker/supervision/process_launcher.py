"""`ProcessLauncher`: runs a supervisor's workers as processes, and connects them with it."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from sparkinesis.errors import FleetError, OptionError, ProcessorError
from sparkinesis.status import FleetState
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Ended,
    Hello,
    Ping,
    Raised,
    ShutDown,
    ToSupervisor,
    ToWorker,
    decode_for_supervisor,
    encode,
)
from sparkinesis.worker.supervision.supervised import Supervised
from sparkinesis.worker.supervision.supervisor import Launcher, Post, message_of
from sparkinesis.worker.supervision.supervisor_state import SupervisorState
from sparkinesis.worker.supervision.worker_process import ProcessSpec, run

_log = logging.getLogger(__name__)

UNGUARDED = 113
"""The exit code of a process that would start workers while it imports its main module."""
_DRAIN = 2.0
"""Seconds to wait for the last messages of a process that has ended: a program that it has started
may hold the pipe open."""


@dataclass
class _Running:
    """A process, with its first and its last message."""

    slot: int
    process: SpawnProcess
    pipe: Connection
    hello: Hello | None = None
    ended: Ended | None = None

    def __str__(self) -> str:
        number = self.slot + 1
        if self.hello is None:
            return f"Worker process {number}"
        return f"Worker {self.hello.worker_id} (process {number}, pid {self.hello.pid})"


class ProcessLauncher(Launcher):
    """Launches workers as child processes. Each is a job of its own, which ends with it.

    Threads read the pipes and wait for the ends. The last message of a process is posted with its
    end: only then may another process take its place, and perhaps its worker id.
    """

    _post: Post

    def __init__(
        self,
        supervised: Supervised[Any],
        pickled: bytes,
        set_up_log: Callable[[], None] | None = None,
    ) -> None:
        """``pickled``: the application; set_up_log: see `run_in_processes`."""
        self._supervised = supervised
        self._pickled = pickled
        self._set_up_log = set_up_log
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, _Running] = {}
        """By job."""
        self._raised: dict[str, BaseException] = {}
        """The errors that ended workers, by their texts."""

    def error_of(self, text: str) -> BaseException:
        """Return the error that ended all workers, as one of them met it if that is possible."""
        return self._raised.get(text) or FleetError(f"The worker processes cannot run: {text}")

    def open(self, post: Post) -> None:
        self._post = post

    def submit(self, job: int, slots: Sequence[int]) -> None:
        (slot,) = slots
        pipe, theirs = multiprocessing.Pipe()
        level = logging.getLogger("sparkinesis").getEffectiveLevel()
        name, defined = self._supervised.name, self._supervised.defined
        spec = ProcessSpec(self._pickled, name, defined, slot, job, level, self._set_up_log)
        process = self._context.Process(target=run, args=(spec, theirs), name=f"{name}-{slot + 1}")
        # Starts a process before the first worker's, and unblocks SIGINT when that is done.
        resource_tracker.ensure_running()
        # The signal mask is inherited: Ctrl-C does not disturb a process that is not ready for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except OSError as error:  # memory or processes have run out
            pipe.close()
            self._post_end(job, f"Worker process {slot + 1} could not be started: {error}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        running = self._running[job] = _Running(slot, process, pipe)
        reading = threading.Thread(
            target=_read, args=(pipe, functools.partial(self._heard, running)), daemon=True
        )
        reading.start()
        threading.Thread(target=self._await_end, args=(job, running, reading), daemon=True).start()

    def cancel(self, job: int, *, at_once: bool) -> None:
        running = self._running.get(job)
        if running is None:
            return
        if not at_once:
            _order(running.pipe, ShutDown(0.0))
            return
        _log.warning("%s has not ended in time, and is killed", running)
        running.process.kill()

    def send(self, message: ToWorker, worker_id: str | None = None) -> None:
        # A pipe closes with its process, so none needs a heartbeat. One that is stopped would not
        # read it, until the pipe is full, and the supervisor would wait.
        if isinstance(message, Ping):
            return
        for running in self._running.values():
            if running.hello is not None and worker_id in {None, running.hello.worker_id}:
                _order(running.pipe, message)

    def drop(self, worker_id: str) -> None:
        """Do nothing: a child process is never lost while it lives."""

    def must_move(self, worker: Hello) -> bool:
        del worker
        return False

    def close(self) -> None:
        for running in self._running.values():
            running.pipe.close()

    # --- in the threads of a process

    def _heard(self, running: _Running, message: ToSupervisor) -> None:
        match message:
            case Hello():
                running.hello = message
            case Ended():
                running.ended = message
                return
            case Raised():
                self._keep(message)
                return
        assert running.hello is not None, "the first message of a process is its Hello"
        self._post(message, message_of(running.hello.worker_id, message))

    def _keep(self, raised: Raised) -> None:
        """Keep the error of a worker, if its class can be loaded here."""
        if not raised.pickled:
            return
        with contextlib.suppress(Exception):  # else its text is raised
            error = pickle.loads(raised.pickled)  # noqa: S301 - from a process of our own
            if isinstance(error, BaseException):
                self._raised[raised.text] = error

    def _await_end(self, job: int, running: _Running, reading: threading.Thread) -> None:
        """Wait for the end of a process, and leave the process to `_died`."""
        _wait_for(running.process)
        reading.join(_DRAIN)
        self._post(f"the end of {running}", functools.partial(self._died, job))

    # --- in the supervisor's thread

    def _died(self, job: int, state: SupervisorState, now: float) -> SupervisorState:
        running = self._running.pop(job)
        # In this thread: multiprocessing asks for exit codes whenever it starts a process.
        running.process.join()
        running.pipe.close()
        code, hello, ended = running.process.exitcode, running.hello, running.ended
        error: str | None = None
        if hello is not None:
            state = state.received(hello.worker_id, ended or Disconnected(), now)
        if ended is None:
            error = f"{running} {how_it_ended(code)}"
        if hello is None and code == UNGUARDED:
            error = self._unguarded()
        elif hello is None and ended is None:
            error = (
                f"{error} before it could start a worker. A process imports the program's main "
                "module first: its output says why that failed"
            )
        elif hello is None and ended is not None and state.roster.state is FleetState.RUNNING:
            state = state.cannot_run(ended.error or "")  # the application cannot be loaded
        # Of a signal, another process may know nothing.
        is_transient = code is None or code < 0
        return state.job_ended(job, error, now, is_transient=is_transient)

    def _unguarded(self) -> str:
        error = OptionError(
            "The program starts its worker processes when it is imported, and each of them imports "
            'it again. Put run(processes=...) below `if __name__ == "__main__":`, so that only the '
            "program itself runs it. No worker has started."
        )
        self._raised[str(error)] = error
        return str(error)

    def _post_end(self, job: int, error: str) -> None:
        self._post(error, lambda state, now: state.job_ended(job, error, now, is_transient=True))


def _read(pipe: Connection, on_message: Callable[[ToSupervisor], None]) -> None:
    """Read the messages of a worker process until it has ended."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            on_message(decode_for_supervisor(pipe.recv_bytes()))


def _order(pipe: Connection, message: ToWorker) -> None:
    """Send an order to a worker process, which may have ended."""
    with contextlib.suppress(OSError):
        pipe.send_bytes(encode(message))


def _wait_for(process: SpawnProcess) -> None:
    """Wait until a process has ended, and leave its exit code to be fetched."""
    if hasattr(os, "waitid") and process.pid is not None:
        with contextlib.suppress(ChildProcessError):  # its exit code was fetched already
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return
    wait([process.sentinel])  # a program that the process has started may hold it open


def how_it_ended(code: int | None) -> str:
    """Return how a process has ended without a last message, as the end of a sentence.

    ``code``: as multiprocessing gives it; None if it is not known.
    """
    if code is not None and code < 0:
        advice = " (Linux does so when memory runs out)" if -code == signal.SIGKILL else ""
        return f"was killed by {_signal(-code)}{advice}"
    if code:
        return f"has ended with exit code {code}; its output on stderr may say why"
    return "has ended without a word"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The main module, which each process imports again before it begins


def exit_if_imported() -> None:
    """End a worker process that imports a main module which starts worker processes.

    Quietly: the supervisor sees the exit code, and raises one error for all.
    """
    # As multiprocessing recognises the same mistake, in multiprocessing.spawn.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(UNGUARDED)


def check_main_module(pickled: bytes, defined: str) -> None:
    """Raise `ProcessorError` if a worker process cannot import what the application refers to.

    defined: where it has to be defined.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    is_found = getattr(main, "__spec__", None) is not None or (path and Path(path).is_file())
    if not is_found and b"__main__" in pickled:
        raise ProcessorError(
            "The application refers to something that was defined in an interactive session, which "
            f"worker processes cannot import. Define it {defined}."
        )
