"""`Fleet`: the driver's handle on an application's workers on Spark executors, and its thread."""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sparkinesis.errors import FleetError, OptionError
from sparkinesis.fleet import notes
from sparkinesis.fleet.channel.control_server import ControlServer, Disconnected
from sparkinesis.fleet.channel.messages import (
    Ended,
    Hello,
    Leaving,
    Ping,
    Report,
    ShutDown,
    Start,
    Wait,
)
from sparkinesis.fleet.channel.tls import DriverIdentity
from sparkinesis.fleet.executor_worker import WorkerSpec
from sparkinesis.fleet.interrupt import python_interrupt_handler
from sparkinesis.fleet.jobs import SparkJobs, check_picklable
from sparkinesis.fleet.options import FleetOptions
from sparkinesis.fleet.reports import FleetReports
from sparkinesis.fleet.roster import (
    Action,
    Cancel,
    Disconnect,
    Roster,
    SendShutDown,
    SendStart,
    SendWait,
    Submit,
)
from sparkinesis.fleet.streams import StreamWatch
from sparkinesis.fleet.unread import ShardWatch
from sparkinesis.fleet.view import reads, watch
from sparkinesis.fleet.watching import health
from sparkinesis.fleet.watching.measured import Restarts, gauges_of
from sparkinesis.metrics.catalogue import FLEET_RESTARTS
from sparkinesis.metrics.health.address import parse_address
from sparkinesis.metrics.health.liveness import Liveness, Part
from sparkinesis.metrics.health.pages import ServedTally, pages
from sparkinesis.metrics.health.signs import SignOfLife, expect
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import CLOSE_WITHIN, Metrics, metrics_of
from sparkinesis.metrics.tally import Series
from sparkinesis.public import public
from sparkinesis.status import FleetState, FleetStatus, WorkerState
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory
from sparkinesis.worker.on_error import DeadLetter, last_resort
from sparkinesis.worker.reporting.failures import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SPARK = 60.0
"""Seconds that a call of Spark may take: its driver may be busy."""
_LONG_WAIT = 10.0
"""Seconds that a task may wait for Spark before a note says so."""


@dataclass(frozen=True, slots=True)
class _JobEnded:
    job: int
    error: str | None


@dataclass(frozen=True, slots=True)
class _Scale:
    workers: int


@dataclass(frozen=True, slots=True)
class _ShutDown:
    within: float
    """Seconds that the workers have."""


@public
class Fleet:
    """The workers of one application on Spark executors, each in a Spark task of its own.

    `Application.run` makes it. All methods are safe to call from any thread; a thread of the fleet
    makes the decisions. As a context manager, the fleet shuts down at the end of the block, and
    raises `FleetError` if it has failed. It also shuts down when the driver's program ends.
    """

    def __init__(
        self,
        application: ApplicationSettings,
        spark: SparkSession,
        workers: int,
        options: FleetOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `OptionError`, `ProcessorError` and `FleetError` before any job is submitted."""
        _check_workers(workers)
        if application.worker_id is not None:
            raise OptionError(
                "worker_id is set, but each worker of a fleet needs its own: leave worker_id out."
            )
        self._application = application
        self._options = options
        self._clock = clock
        self._stream = application.stream_names()
        # Spark's tags may not contain a comma.
        group = (options.job_group or f"sparkinesis {application.name}").replace(",", " ")
        self._jobs = SparkJobs(spark, group, f"{application.name} on {reads(self._stream)}")
        address = self._jobs.driver_address(options)
        identity = DriverIdentity.new()
        spec = WorkerSpec(
            application,
            address.host,
            options.port,
            identity.credentials,
            options.heartbeat_interval,
            options.lost_after,
            options.log_level,
        )
        check_picklable(spec)
        self._sign = SignOfLife(clock)
        self._live = Liveness(self._parts, clock)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._roster = Roster(options, self._jobs.max_failures()).scaled(workers)
        failover_time = application.options.failover_time
        settled_after = failover_time + 2 * options.heartbeat_interval
        self._reports = FleetReports(watch=ShardWatch(settled_after))
        self._noted_waiting = 0
        """The number of waiting workers in the last note about them."""
        self._all_graceful = True
        """True while every worker that ended did so gracefully."""
        self._deadline: float | None = None
        """The time at which a shutdown cancels the remaining jobs."""
        self._shutdown_within = application.options.shutdown_timeout
        if not self._jobs.is_local:
            self._warn_of_local_dead_letters()
        self._status = self._reports.status(application.name, self._stream, self._roster, clock())
        self._changed = threading.Condition()
        self._restarts = Restarts()
        with ExitStack() as opened:
            self._served = self._take_port()
            opened.callback(self._close_http)
            self._metrics = self._open_metrics()
            opened.callback(self._metrics.close)
            self._control = ControlServer(
                address.bind,
                options.port,
                identity,
                lambda worker, what: self._events.put((worker, what)),
            )
            opened.callback(self._control.close)
            self._spec = replace(spec, port=self._control.port)
            self._thread = threading.Thread(target=self._run, name=f"{group}-fleet", daemon=True)
            self._serve()
            self._thread.start()
            opened.pop_all()
        atexit.register(self._at_exit)

    def _warn_of_local_dead_letters(self) -> None:
        application = self._application
        policies = [application.on_error]
        if application.streams is not None and not callable(application.streams):
            policies += [plan.on_error for plan in application.plans()]
        paths: dict[str, None] = {}
        for policy in policies:
            resort = last_resort(policy)
            target = resort.target if isinstance(resort, DeadLetter) else None
            if isinstance(target, DeadLetterDirectory) and target.is_local:
                paths[str(target.path)] = None
        for path in paths:
            self._note(notes.local_dead_letters(path))

    # --- public methods, for any thread

    @property
    def application(self) -> ApplicationSettings:
        """The application that the workers run."""
        return self._application

    def status(self) -> FleetStatus:
        """Return the fleet's status, which is at most a heartbeat interval old."""
        return self._status

    def scale(self, workers: int) -> None:
        """Change the number of workers; return at once.

        Surplus workers shut down gracefully. Raises `OptionError` for less than one worker, and
        `FleetError` if the fleet is shutting down or has ended.
        """
        _check_workers(workers)
        if self._status.state is not FleetState.RUNNING:
            raise FleetError(
                f"The fleet is {self._status.state.value} and cannot be scaled. Start another one."
            )
        self._events.put(_Scale(workers))

    def request_shutdown(self, timeout: float | None = None) -> None:
        """Start a graceful shutdown and return at once. See `shutdown`."""
        seconds = self._application.options.shutdown_timeout if timeout is None else timeout
        self._events.put(_ShutDown(seconds))

    def shutdown(self, timeout: float | None = None) -> bool:
        """Shut down gracefully and wait for the end.

        Every worker finishes its current batches, lets its processors checkpoint, releases its
        leases, and ends its Spark task. timeout: seconds that the workers have; None: the
        application's ``shutdown_timeout``. Workers that have not ended ``lost_after`` seconds later
        are cancelled. Return True if all workers ended gracefully; False also if the fleet has
        failed.
        """
        seconds = self._application.options.shutdown_timeout if timeout is None else timeout
        self.request_shutdown(seconds)
        self._wait(seconds + 2 * self._options.lost_after)  # the rest is cancelled by then
        has_ended = self._status.state is FleetState.ENDED
        return has_ended and not self._roster.is_abandoned and self._all_graceful

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the fleet's end; return True if it has ended.

        A fleet ends by `shutdown`, or when a record processor requests it. Raises `FleetError` if
        the fleet has failed. Ctrl-C raises KeyboardInterrupt; the fleet keeps running.
        """
        ended = self._wait(timeout)
        self._raise_failure()
        return ended

    def _raise_failure(self) -> None:
        if self._status.state is FleetState.FAILED:
            raise FleetError(
                f"The fleet of {self._application.name!r} has failed: {self._status.error}"
            )

    def watch(self) -> None:
        """Show the fleet on the terminal, updated in place, until the fleet ends.

        Ctrl-C ends only the view.
        """
        watch(self.status, wait=self._wait)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        if error is None:
            self._raise_failure()

    def _wait(self, timeout: float | None) -> bool:
        # PySpark's handler of Ctrl-C would cancel all jobs, and so kill the workers.
        with python_interrupt_handler(only_for_spark=True), self._changed:
            return self._changed.wait_for(lambda: self._status.state.is_over, timeout)

    def _at_exit(self) -> None:
        if not self._status.state.is_over:
            _log.info("The program is ending: shutting down the fleet")
            self.shutdown()
        self._thread.join(CLOSE_WITHIN)  # it publishes the last metrics

    @property
    def http_url(self) -> str | None:
        """The URL under which the driver tells the health and the metrics of all workers.

        None without the option ``http`` of the application's `WorkerOptions`, and once the fleet
        has ended.
        """
        served = self._served
        return None if served is None else served.server.url

    # --- health

    def _labels(self) -> Mapping[str, str]:
        return {"application": self._application.name}

    def _take_port(self) -> ServedTally | None:
        """Take the port of the application's option ``http``. Raises `OptionError`."""
        http = self._application.options.http
        if http is None:
            return None
        return ServedTally.starting(parse_address("http", http), self._labels())

    def _open_metrics(self) -> Metrics:
        """Begin to measure the fleet for those who have asked for it. Raises `OptionError`."""
        application = self._application
        measured = Measured.fleet(application.name, application.place())
        own = () if self._served is None else (self._served,)
        metrics = metrics_of(application.options.metrics, measured, *own)
        metrics.watch(lambda: gauges_of(self._status))
        return metrics

    def _serve(self) -> None:
        """Serve what the workers report, by HTTP, if the port was taken."""
        served = self._served
        if served is None:
            return
        served.server.serve(
            pages(
                live=lambda: [*self._live.problems(), *health.why_not_live(self._status.workers)],
                ready=lambda: health.why_not_ready(self._status),
                status=self.status,
                groups=lambda: [(self._labels(), served.series()), *self._groups()],
            ),
            self._live.look,
        )

    def _groups(self) -> list[tuple[Mapping[str, str], tuple[Series, ...]]]:
        reports = self._reports
        live = reports.live(self._roster, self._clock())
        return reports.series.groups(self._application.name, live)

    def _parts(self) -> list[Part]:
        if self._status.state.is_over:
            return []
        has_begun = self._thread.ident is not None
        return [
            Part("the fleet's thread", self._sign.due, has_begun and not self._thread.is_alive())
        ]

    def _close_http(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            served.close()

    # --- the fleet's own thread

    def _run(self) -> None:
        try:
            self._sign.during(self._loop)
        except BaseException as error:  # noqa: BLE001 - else callers would wait for ever
            _log.exception("Fleet of %s: failed by an unexpected error", self._application.name)
            self._roster = self._roster.failed(describe(error))
            self._publish_failure()
        self._control.close()  # remaining workers see that their driver has ended, and shut down
        self._metrics.close()
        atexit.unregister(self._at_exit)

    def _loop(self) -> None:
        next_beat = self._clock()
        while not self._roster.state.is_over:
            expect()
            now = self._clock()
            if now >= next_beat:
                next_beat = now + self._options.heartbeat_interval
                self._send_heartbeat()
            self._check_shutdown_deadline(now)
            self._reconcile()
            due = min(next_beat, self._roster.next_action_at(now))
            pause = max(0.0, due - self._clock())
            expect(pause)
            try:
                self._handle(self._events.get(timeout=pause))
                while True:
                    self._handle(self._events.get_nowait())
            except queue.Empty:
                pass

    def _check_shutdown_deadline(self, now: float) -> None:
        """Cancel the remaining jobs once a shutdown has taken too long."""
        roster = self._roster
        if roster.state is not FleetState.SHUTTING_DOWN or roster.is_abandoned:
            return
        if self._deadline is None:
            self._deadline = now + self._shutdown_within + self._options.lost_after
        elif now >= self._deadline:
            self._note("The shutdown took too long: cancelling the remaining workers")
            self._roster = roster.abandoned()

    def _send_heartbeat(self) -> None:
        self._control.send_to_all(Ping())
        self._note_waiting_workers()
        for member in self._roster.members.values():
            if member.must_leave or member.state not in {WorkerState.RUNNING, WorkerState.STARTING}:
                continue
            hello = self._reports.workers[member.worker_id].hello
            expect(_SPARK)
            if self._jobs.is_decommissioned(hello.stage_id, hello.task_attempt_id):
                self._note(notes.decommissioned(hello))
                self._roster = self._roster.decommissioned(member.worker_id)

    def _note_waiting_workers(self) -> None:
        late = self._clock() - _LONG_WAIT
        slots = self._roster.slots.values()
        waiting = sum(slot.is_waiting and slot.empty_since < late for slot in slots)
        if waiting > self._noted_waiting:
            self._note(notes.waiting(waiting, len(slots)))
        self._noted_waiting = waiting

    def _reconcile(self) -> None:
        now = self._clock()
        self._roster, actions = self._roster.reconcile(now)
        self._restarts, again = self._restarts.after(self._roster, actions)
        if again:
            self._metrics.add(FLEET_RESTARTS, (), again)
        for action in actions:
            self._execute(action)
        self._publish(now)

    def _publish(self, now: float) -> None:
        self._reports = self._reports.retain(self._roster.members)
        status = self._reports.status(self._application.name, self._stream, self._roster, now)
        if status.state.is_over:
            self._close_http()  # first: who waits for the end may use the port again
        with self._changed:
            self._status = status
            self._changed.notify_all()

    def _publish_failure(self) -> None:
        self._close_http()
        # The rest keeps its last value: computing a new status may be what failed.
        with self._changed:
            self._status = replace(self._status, state=FleetState.FAILED, error=self._roster.error)
            self._changed.notify_all()

    def _execute(self, action: Action) -> None:
        _log.debug("Fleet of %s: %s", self._application.name, action)
        expect(_SPARK)
        if isinstance(action, Submit):
            self._submit(action)
        elif isinstance(action, Cancel):
            self._jobs.cancel(action.job)
        elif isinstance(action, SendStart):
            self._control.send(action.worker_id, Start())
        elif isinstance(action, SendWait):
            self._control.send(action.worker_id, Wait())
        elif isinstance(action, SendShutDown):
            self._control.send(action.worker_id, ShutDown(self._shutdown_within))
        elif isinstance(action, Disconnect):
            self._control.drop(action.worker_id)

    def _submit(self, submit: Submit) -> None:
        def on_end(error: str | None) -> None:
            self._events.put(_JobEnded(submit.job, error))

        self._jobs.submit(submit.job, submit.slots, self._spec, on_end)

    def _handle(self, event: Any) -> None:
        _log.debug("Fleet of %s: %s", self._application.name, event)
        now = self._clock()
        if isinstance(event, tuple):
            worker_id, message = event
            self._handle_message(worker_id, message, now)
        elif isinstance(event, _JobEnded):
            self._job_ended(event, now)
        elif isinstance(event, _Scale):
            self._note(f"scaled to {event.workers} workers", logging.INFO)
            self._roster = self._roster.scaled(event.workers)
        elif isinstance(event, _ShutDown):
            self._shutdown_within = event.within
            self._deadline = None
            self._roster = self._roster.shut_down()

    def _handle_message(self, worker_id: str, message: Any, now: float) -> None:
        if isinstance(message, Hello):
            self._reports = self._reports.add_hello(message, now)
            if worker_id not in self._roster.members:
                self._note(notes.joined(message), logging.INFO)
            self._roster = self._roster.joined(
                worker_id,
                message.slot,
                message.job,
                now,
                attempt=message.attempt,
                is_running=message.is_running,
                is_leaving=message.is_leaving,
            )
        elif isinstance(message, Report):
            before = self._reports.streams
            self._reports, new = self._reports.add_report(worker_id, message, now)
            self._note_streams(worker_id, before)
            for failure in new:
                _log.error(
                    "%s, on worker %s: %s\n%s",
                    failure.what,
                    worker_id,
                    failure.error,
                    failure.traceback,
                )
            self._roster = self._roster.heard(worker_id, now, is_running=message.is_running)
        elif isinstance(message, Leaving):
            self._note(f"Worker {worker_id} is shutting down: {message.why}")
            self._roster = self._roster.leaving(worker_id, is_for_all=message.is_for_all)
        elif isinstance(message, Ended):
            self._all_graceful = self._all_graceful and message.was_graceful
            if (text := notes.ended(worker_id, message)) is not None:
                self._note(text)
            self._roster = self._roster.ended(
                worker_id, message.error, now, is_transient=message.is_transient
            )
        elif isinstance(message, Disconnected):
            self._disconnected(worker_id, now)

    def _note_streams(self, worker_id: str, before: StreamWatch) -> None:
        failing, recovered = self._reports.streams.news(before)
        if failing:
            self._note(notes.unreadable(worker_id, failing))
        if recovered:
            self._note(notes.readable(recovered), logging.INFO)

    def _disconnected(self, worker_id: str, now: float) -> None:
        member = self._roster.members.get(worker_id)
        if member is not None and member.state is not WorkerState.STANDBY:
            self._note(notes.lost(self._reports.workers[worker_id], now))
            self._reports = self._reports.add_loss(worker_id)
        self._roster = self._roster.disconnected(worker_id, now)

    def _job_ended(self, event: _JobEnded, now: float) -> None:
        before = self._roster
        if (
            event.error is not None
            and before.state is FleetState.RUNNING
            and self._jobs.is_stopped()
        ):
            why = "the Spark session was stopped. Call the fleet's shutdown() before spark.stop()"
            self._note(f"No worker can run any more: {why}")
            before = before.shut_down(why)
        self._roster = before.job_ended(event.job, event.error, now)
        if before.error is None and self._roster.error is not None:
            self._note(f"The first workers could not run, and the fleet fails: {event.error}")
        again = [
            slot
            for number, slot in self._roster.slots.items()
            if slot.job is None and before.slots[number].job == event.job
        ]
        if again:
            self._note(notes.submitted_again(again, event.error, now))

    def _note(self, text: str, level: int = logging.WARNING) -> None:
        _log.log(level, "Fleet of %s: %s", self._application.name, text)
        self._reports = self._reports.add_note(text)


def _check_workers(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise OptionError(f"workers is {workers!r}; it takes a whole number of at least 1.")
