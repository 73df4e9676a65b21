"""`FleetDriver`: the thread of a fleet, which hears its workers and jobs, and acts."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from sparkinesis.fleet.channel.control_server import ControlServer, Disconnected
from sparkinesis.fleet.channel.messages import Ping, Start, ToDriver, Wait
from sparkinesis.fleet.channel.tls import DriverIdentity
from sparkinesis.fleet.executor_worker import WorkerSpec
from sparkinesis.fleet.jobs import SparkJobs, check_sendable
from sparkinesis.fleet.knowledge import notes
from sparkinesis.fleet.knowledge.known import Known
from sparkinesis.fleet.knowledge.reconciling import (
    Action,
    Cancel,
    Disconnect,
    SendShutDown,
    SendStart,
    SendWait,
    Submit,
)
from sparkinesis.fleet.knowledge.roster import AT_WORK, Roster
from sparkinesis.fleet.options import FleetOptions
from sparkinesis.fleet.view import reads
from sparkinesis.metrics.catalogue import FLEET_RESTARTS
from sparkinesis.metrics.health.liveness import Liveness, Part
from sparkinesis.metrics.health.signs import SignOfLife, expect
from sparkinesis.status import FleetState, FleetStatus
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.crew.gathering.reports import CrewReports
from sparkinesis.worker.crew.messages import ShutDown
from sparkinesis.worker.crew.served import Groups, ServedCrew
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory
from sparkinesis.worker.on_error import DeadLetter, last_resort
from sparkinesis.worker.reporting.failures import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SPARK = 60.0
"""Seconds that a call of Spark may take: its driver may be busy."""

Change: TypeAlias = Callable[[Known, float], Known]
"""Returns what is known after an event; gets what was known, and the time. For the thread."""


class FleetDriver:
    """Submits the jobs of a fleet and leads its workers, in a thread of its own, until its end.

    What the thread knows is one value, `Known`, which only it changes. Other threads tell the
    thread what has happened, and read the last status.
    """

    def __init__(
        self,
        application: ApplicationSettings,
        spark: SparkSession,
        workers: int,
        options: FleetOptions,
        *,
        clock: Callable[[], float],
        on_end: Callable[[], None],
    ) -> None:
        """Raises `OptionError`, `ProcessorError` and `FleetError` before any job is submitted."""
        self._name = application.name
        self._options = options
        self._clock = clock
        self._on_end = on_end
        stream = application.stream_names()
        # Spark's tags may not contain a comma.
        group = (options.job_group or f"sparkinesis {application.name}").replace(",", " ")
        self._jobs = SparkJobs(spark, group, f"{application.name} on {reads(stream)}")
        bind, host = self._jobs.driver_address(options)
        identity = DriverIdentity.new()
        spec = WorkerSpec(
            application,
            host,
            options.port,
            identity.credentials,
            options.heartbeat_interval,
            options.lost_after,
            options.log_level,
        )
        check_sendable(application)
        settled_after = application.options.failover_time + 2 * options.heartbeat_interval
        self._known = Known(
            application.name,
            stream,
            application.options.shutdown_timeout,
            Roster(options, self._jobs.max_failures()).scaled(workers),
            CrewReports(settled_after),
        )
        if not self._jobs.is_local:
            for path in _local_dead_letters(application):
                self._change_to(self._known.note(notes.local_dead_letters(path)))
        self._events: queue.SimpleQueue[tuple[object, Change]] = queue.SimpleQueue()
        self._sign = SignOfLife(clock)
        self.status: FleetStatus = self._known.status(clock())
        """The last status that was published."""
        self._changed = threading.Condition()
        with ExitStack() as opened:
            self.served = ServedCrew(application, lambda: self.status)
            opened.callback(self.served.close)
            self._control = ControlServer(bind, options.port, identity, self.receive)
            opened.callback(self._control.close)
            self._spec = replace(spec, port=self._control.port)
            self.thread = threading.Thread(target=self._run, name=f"{group}-fleet", daemon=True)
            self.served.serve(Liveness(self._parts, clock), self._groups)
            self.thread.start()
            opened.pop_all()

    # --- for any thread

    def post(self, what: object, change: Change) -> None:
        """Tell the thread what has happened. ``what``: for the log."""
        self._events.put((what, change))

    def receive(self, worker_id: str, message: ToDriver | Disconnected) -> None:
        """Tell the thread of a message of a worker."""
        self.post((worker_id, message), lambda known, now: known.received(worker_id, message, now))

    def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a status that fulfils a condition; return False if none came in time."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    @property
    def was_graceful(self) -> bool:
        """True if all workers that have ended did so in time."""
        known = self._known
        return known.are_all_graceful and not known.roster.is_abandoned

    def _groups(self) -> Groups:
        known = self._known
        live = known.reports.live(known.roster, self._clock())
        return known.reports.series.groups(known.application, live)

    def _parts(self) -> list[Part]:
        if self.status.state.is_over:
            return []
        has_died = self.thread.ident is not None and not self.thread.is_alive()
        return [Part("the fleet's thread", self._sign.due, has_died)]

    # --- for the thread

    def _run(self) -> None:
        try:
            self._sign.during(self._loop)
        except BaseException as error:  # noqa: BLE001 - else callers would wait for ever
            _log.exception("Fleet of %s: failed by an unexpected error", self._name)
            roster = self._known.roster.failed(describe(error))
            self._known = replace(self._known, roster=roster)
            # The rest keeps its last value: computing a new status may be what failed.
            self._publish(
                msgspec.structs.replace(self.status, state=FleetState.FAILED, error=roster.error)
            )
        self._control.close()  # remaining workers see that their driver has ended, and shut down
        self.served.close()
        self._on_end()

    def _loop(self) -> None:
        next_beat = self._clock()
        while not self._known.roster.state.is_over:
            expect()
            now = self._clock()
            if now >= next_beat:
                next_beat = now + self._options.heartbeat_interval
                self._send_heartbeat()
            self._change_to(self._known.looked_at_shutdown(now))
            self._reconcile()
            due = min(next_beat, self._known.roster.next_action_at(now))
            pause = max(0.0, due - self._clock())
            expect(pause)
            try:
                self._handle(*self._events.get(timeout=pause))
                while True:
                    self._handle(*self._events.get_nowait())
            except queue.Empty:
                pass

    def _handle(self, what: object, change: Change) -> None:
        _log.debug("Fleet of %s: %s", self._name, what)
        self._change_to(change(self._known, self._clock()))

    def _change_to(self, known: Known) -> None:
        for level, line in known.unlogged:
            _log.log(level, "%s", line)
        self._known = replace(known, unlogged=())

    def _send_heartbeat(self) -> None:
        self._control.send_to_all(Ping())
        self._change_to(self._known.looked_at_waiting(self._clock()))
        moving = [
            member.worker_id
            for member in self._known.roster.members.values()
            if not member.must_leave and member.state in AT_WORK
            if self._must_move(member.worker_id)
        ]
        self._change_to(self._known.decommissioned(moving))

    def _must_move(self, worker_id: str) -> bool:
        hello = self._known.reports.workers[worker_id].hello
        expect(_SPARK)
        return self._jobs.is_decommissioned(hello.stage_id, hello.task_attempt_id)

    def _reconcile(self) -> None:
        now = self._clock()
        before = self._known.restarted
        known, actions = self._known.reconciled(now)
        self._change_to(known)
        if known.restarted > before:
            self.served.metrics.add(FLEET_RESTARTS, (), known.restarted - before)
        for action in actions:
            self._execute(action)
        self._publish(self._known.status(now))

    def _publish(self, status: FleetStatus) -> None:
        if status.state.is_over:
            self.served.stop_serving()  # first: who waits for the end may use the port again
        with self._changed:
            self.status = status
            self._changed.notify_all()

    def _execute(self, action: Action) -> None:
        _log.debug("Fleet of %s: %s", self._name, action)
        expect(_SPARK)
        match action:
            case Submit(job, slots):
                self._jobs.submit(job, slots, self._spec, lambda error: self._job_ended(job, error))
            case Cancel(job):
                self._jobs.cancel(job)
            case SendStart(worker_id):
                self._control.send(worker_id, Start())
            case SendWait(worker_id):
                self._control.send(worker_id, Wait())
            case SendShutDown(worker_id):
                self._control.send(worker_id, ShutDown(self._known.shutdown_within))
            case Disconnect(worker_id):
                self._control.drop(worker_id)

    def _job_ended(self, job: int, error: str | None) -> None:
        """Tell the thread that a job has ended; called in the job's thread."""

        def change(known: Known, now: float) -> Known:
            is_running = known.roster.state is FleetState.RUNNING
            is_stopped = error is not None and is_running and self._jobs.is_stopped()
            return known.job_ended(job, error, now, is_stopped=is_stopped)

        self.post(f"job {job} has ended: {error}", change)


def _local_dead_letters(application: ApplicationSettings) -> list[str]:
    """Return the directories for dead letters that each executor has for itself."""
    policies = [application.on_error]
    if application.streams is not None and not callable(application.streams):
        policies += [plan.on_error for plan in application.plans()]
    resorts = map(last_resort, policies)
    targets = [resort.target for resort in resorts if isinstance(resort, DeadLetter)]
    paths = [
        str(target.path)
        for target in targets
        if isinstance(target, DeadLetterDirectory) and target.is_local
    ]
    return list(dict.fromkeys(paths))
