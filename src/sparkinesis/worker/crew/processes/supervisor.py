"""`Supervisor`: starts the worker processes, leads them, and waits for their end."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import pickle
import queue
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeAlias

from sparkinesis.errors import FleetError
from sparkinesis.metrics.catalogue import FLEET_RESTARTS
from sparkinesis.metrics.health.liveness import Liveness
from sparkinesis.status import FleetStatus
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.crew.gathering.reports import CrewReports
from sparkinesis.worker.crew.messages import Ended, Introduction, Leaving, Raised, Report, ShutDown
from sparkinesis.worker.crew.processes.channel import ToSupervisor, order, read_workers
from sparkinesis.worker.crew.processes.main_module import unguarded_error
from sparkinesis.worker.crew.processes.roster import Fatal, Kill, Roster, StartProcess
from sparkinesis.worker.crew.processes.worker_process import ProcessSpec, run
from sparkinesis.worker.crew.served import Groups, ServedCrew
from sparkinesis.worker.lifecycle.signals import graceful_on_signals

_log = logging.getLogger(__name__)

_DRAIN = 2.0
"""Seconds to wait for the last messages of a process that has ended: a program that it has started
may hold the pipe open."""

Change: TypeAlias = Callable[[Roster, float], Roster]
"""Returns the roster after an event; gets the one before, and the time."""


@dataclass(frozen=True)
class _Running:
    process: SpawnProcess
    pipe: Connection


class Supervisor:
    """Leads worker processes from `run` to their end, in the thread that calls it.

    What it knows are two values: `Roster`, and `CrewReports` of what workers report. Threads that
    read pipes, wait for a process or follow a signal queue what has happened.
    """

    def __init__(
        self,
        application: ApplicationSettings,
        pickled: bytes,
        count: int,
        set_up_log: Callable[[], None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Take the application as it was pickled; ``set_up_log``: see `run_in_processes`.

        draw: returns random numbers from 0 to 1.
        """
        self._application = application
        self._pickled = pickled
        self._set_up_log = set_up_log
        self._clock = clock
        self._draw = draw
        self._context = multiprocessing.get_context("spawn")
        self._roster = Roster.of(count)
        self._running: dict[int, _Running] = {}
        self._events: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self._stream = application.stream_names()
        self._reports: CrewReports[Introduction] = CrewReports(
            settled_after=application.options.failover_time + application.options.taker_interval
        )
        self._served = ServedCrew(application, self._status)
        self._served.serve(Liveness(tuple, clock), self._groups)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self._served.close()

    def _status(self) -> FleetStatus:
        """Return the status of all; for any thread, since it is computed of two values."""
        name = self._application.name
        return self._reports.status(name, self._stream, self._roster, self._clock())

    def _groups(self) -> Groups:
        reports = self._reports
        live = reports.live(self._roster, self._clock())
        return reports.series.groups(self._application.name, live)

    def run(self) -> None:
        """Run the workers until all have ended. Raises the error that ended them, if one did."""
        _log.info(
            "Application %s runs %d worker processes", self._application.name, self._roster.wanted
        )
        try:
            with graceful_on_signals(self._request_shutdown):
                self._lead()
        finally:
            # Also after an error of this code: workers whose pipe closes shut down by themselves.
            for running in self._running.values():
                running.pipe.close()
        if self._roster.fatal is not None:
            raise _error_of(self._roster.fatal)

    def _lead(self) -> None:
        while not self._roster.is_over:
            now = self._clock()
            for action in self._roster.actions(now):
                match action:
                    case StartProcess(slot):
                        self._start(slot)
                    case Kill(slot):
                        self._kill(slot)
            pause = min(self._roster.next_action_at() - self._clock(), threading.TIMEOUT_MAX)
            try:
                self._change(self._events.get(timeout=max(0.0, pause)))
            except queue.Empty:
                continue

    def _change(self, change: Change) -> None:
        before = self._roster
        roster = change(before, self._clock())
        for note in roster.notes:
            _log.warning("%s", note)
            self._reports = self._reports.add_note(note)
        self._know(roster.noted())
        if self._roster.kill_at < before.kill_at:
            self._shut_down_all()

    def _know(self, roster: Roster) -> None:
        again = roster.restarts - self._roster.restarts
        self._roster = roster
        if again:
            self._served.metrics.add(FLEET_RESTARTS, (), again)

    # --- processes

    def _start(self, slot: int) -> None:
        pipe, theirs = multiprocessing.Pipe()
        spec = ProcessSpec(
            self._pickled,
            self._application.name,
            slot,
            logging.getLogger("sparkinesis").getEffectiveLevel(),
            self._set_up_log,
        )
        process = self._context.Process(
            target=run, args=(spec, theirs), name=f"{self._application.name}-{slot}"
        )
        # Starts a process before the first worker's, and unblocks SIGINT when that is done.
        resource_tracker.ensure_running()
        # The signal mask is inherited: Ctrl-C does not disturb a process that is not ready for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except OSError as error:
            pipe.close()
            why, draw = str(error), self._draw()
            self._change(lambda roster, now: roster.not_started(slot, why, now, draw))
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._running[slot] = _Running(process, pipe)
        self._know(self._roster.started(slot, self._clock()))
        reading = threading.Thread(
            target=read_workers, args=(pipe, functools.partial(self._heard, slot)), daemon=True
        )
        reading.start()
        threading.Thread(target=self._await_end, args=(slot, process, reading), daemon=True).start()

    def _await_end(self, slot: int, process: SpawnProcess, reading: threading.Thread) -> None:
        """Wait for the end of a process, and leave the process to `_died`."""
        _wait_for(process)
        reading.join(_DRAIN)
        self._events.put(functools.partial(self._died, slot))

    def _died(self, slot: int, roster: Roster, now: float) -> Roster:
        running = self._running.pop(slot)
        running.process.join()
        running.pipe.close()
        if (worker := roster.slots[slot].worker) is not None:
            if roster.slots[slot].ended is None:
                self._reports = self._reports.add_loss(worker.worker_id)
            # Its successor may have the same id, and counts from 0.
            self._reports = self._reports.forget([worker.worker_id])
        return roster.died(slot, running.process.exitcode, now, self._within, self._draw())

    def _kill(self, slot: int) -> None:
        _log.warning("Worker process %d has not ended in time, and is killed", slot)
        self._running[slot].process.kill()
        self._know(self._roster.killed(slot))

    def _shut_down_all(self) -> None:
        """Tell all processes to end in the time that is left until they would be killed."""
        within = self._roster.within(self._clock())
        for running in self._running.values():
            order(running.pipe, ShutDown(within))

    @property
    def _within(self) -> float:
        return self._application.options.shutdown_timeout

    # --- for other threads, and signal handlers

    def _heard(self, slot: int, message: ToSupervisor) -> None:
        def change(roster: Roster, now: float) -> Roster:
            match message:
                case Introduction():
                    self._reports = self._reports.add_hello(message, now)
                    return roster.introduced(slot, message, now)
                case Leaving():
                    return roster.left(slot, message, now, self._within)
                case Raised():
                    return roster.failed(slot, message)
                case Ended():
                    return roster.ended(slot, message)
                case Report():
                    return self._reported(slot, message, roster, now)

        self._events.put(change)

    def _reported(self, slot: int, report: Report, roster: Roster, now: float) -> Roster:
        if (worker := roster.slots[slot].worker) is not None:
            # The process itself has logged its failures.
            self._reports, _ = self._reports.add_report(worker.worker_id, report, now)
        return roster.reported(slot, now, is_running=report.is_running)

    def _request_shutdown(self, timeout: float | None) -> None:
        within = self._within if timeout is None else timeout
        self._events.put(lambda roster, now: roster.shut_down(now, within))


def _wait_for(process: SpawnProcess) -> None:
    """Wait until a process has ended, and leave its exit code to be fetched."""
    if hasattr(os, "waitid") and process.pid is not None:
        with contextlib.suppress(ChildProcessError):  # its exit code was fetched already
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return
    wait([process.sentinel])  # a program that the process has started may hold it open


def _error_of(fatal: Fatal) -> BaseException:
    """Return the error that ended the workers, as they met it if that is possible."""
    if fatal.is_unguarded:
        return unguarded_error()
    if fatal.raised is not None and fatal.raised.pickled:
        error = pickle.loads(fatal.raised.pickled)  # noqa: S301 - from a process of our own
        if isinstance(error, BaseException):
            return error
    return FleetError(f"The worker processes cannot run: {fatal.text}")
