"""`Supervisor`: keeps several workers alive, gathers their reports, and ends them in order.

One loop serves a fleet, whose workers are tasks of Spark, and the worker processes of one machine:
a `Launcher` makes, orders and ends them.
"""

# Everything that the loop knows is one value, `SupervisorState`, which only its thread changes.
# Other threads, which read connections or wait for the end of a job, post a function from one state
# to the next. So every decision is pure, events count in their order, and no lock is held while
# Spark is called, which may take seconds.
#
# An end has an order:
#
# - A shutdown always ends, whether a user, a record processor, a signal or a failure asked for it.
#   Of several requests the shortest time counts. `lost_after` behind it, all jobs are cancelled.
# - The port is free before the end is published: a program that waits for the end may open it
#   again. The last metrics are published after that, by `close`.
# - An error in this code ends the supervisor as FAILED, with its last status: to compute a new one
#   may be what failed. `close` then drops the connections, and the workers shut down by themselves.

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import msgspec

from sparkinesis.metrics.catalogue import FLEET_RESTARTS, FLEET_RUNNING, FLEET_WAITING, FLEET_WANTED
from sparkinesis.metrics.health.liveness import Liveness, Part, SignOfLife, expect
from sparkinesis.metrics.health.pages import pages
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics, Sample, metrics_of
from sparkinesis.metrics.tally import Series
from sparkinesis.status import FleetState, FleetStatus, WorkerState, WorkerStatus
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.health import serving
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Hello,
    Ping,
    ShutDown,
    Start,
    ToSupervisor,
    ToWorker,
    Wait,
)
from sparkinesis.worker.supervision.gathered_reports import GatheredReports
from sparkinesis.worker.supervision.reconciling import (
    Action,
    Cancel,
    Disconnect,
    SendShutDown,
    SendStart,
    SendWait,
    Submit,
)
from sparkinesis.worker.supervision.roster import AT_WORK, Roster, Rules
from sparkinesis.worker.supervision.supervised import Supervised
from sparkinesis.worker.supervision.supervisor_state import SupervisorState

_log = logging.getLogger(__name__)

_CALL = 60.0
"""Seconds that a call of the launcher may take: Spark may be busy."""

Change: TypeAlias = Callable[[SupervisorState, float], SupervisorState]
"""Returns the state after an event; gets the state before it, and the time."""
Post: TypeAlias = Callable[[object, Change], None]
"""Gives the supervisor an event: its text for the log, and its change. For any thread."""


class Launcher(Protocol):
    """Makes the workers of a supervisor, and connects them with it. For the supervisor's thread."""

    def open(self, post: Post) -> None:
        """Begin to hear workers, whose messages are posted with `message_of`."""

    def submit(self, job: int, slots: Sequence[int]) -> None:
        """Launch a job whose workers fill these slots; its end is posted."""

    def cancel(self, job: int, *, at_once: bool) -> None:
        """End a job; ``at_once``: its workers have had their time for a graceful end."""

    def send(self, message: ToWorker, worker_id: str | None = None) -> None:
        """Send a message to a worker if it is connected; None: to all that are."""

    def drop(self, worker_id: str) -> None:
        """Close a worker's connection."""

    def must_move(self, worker: Hello) -> bool:
        """Return True if a worker has to run elsewhere."""

    def close(self) -> None:
        """Close all connections: workers that are left shut down by themselves."""


def message_of(worker_id: str, message: ToSupervisor | Disconnected) -> Change:
    """Return what a message of a worker changes."""
    return lambda state, now: state.received(worker_id, message, now)


class Supervisor:
    """Leads the workers of an application in `run`, until all have ended.

    Other threads `post` what has happened, and read the last status.
    """

    def __init__(
        self,
        supervised: Supervised[Any],
        launcher: Launcher,
        workers: int,
        rules: Rules,
        *,
        title: str,
        clock: Callable[[], float],
        notes: Sequence[str] = (),
    ) -> None:
        """Takes the port of the option ``http``, and opens the launcher.

        title: what the workers are together, for the log. notes: what users are to know from the
        start. Raises `OptionError` and the launcher's errors.
        """
        self._title = title
        self._launcher = launcher
        self._clock = clock
        self._state = SupervisorState(
            title,
            supervised,
            supervised.shutdown_within,
            Roster(rules).scaled(workers),
            # By then, the lease table shows that a worker has died.
            GatheredReports(supervised.failover_time + 2 * rules.heartbeat_interval),
        )
        for note in notes:
            self._change_to(self._state.note(note))
        self._events: queue.SimpleQueue[tuple[object, Change]] = queue.SimpleQueue()
        self._sign = SignOfLife(clock)
        self._thread: threading.Thread | None = None
        self.status: FleetStatus = self._state.status(clock())
        """The last status that was published."""
        self._changed = threading.Condition()
        with ExitStack() as opened:
            self.served = SupervisorPages(supervised, lambda: self.status)
            opened.callback(self.served.close)
            launcher.open(self.post)
            self.served.serve(Liveness(self._parts, clock), self._groups)
            opened.pop_all()

    # --- for any thread

    def post(self, what: object, change: Change) -> None:
        """Have the supervisor apply a change. ``what``: the event, for the log."""
        self._events.put((what, change))

    def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for a status that fulfils a condition; return False if none came in time."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    @property
    def was_graceful(self) -> bool:
        """True if all workers that have ended did so in time."""
        state = self._state
        return state.are_all_graceful and not state.roster.is_abandoned

    def _groups(self) -> Groups:
        state = self._state
        live = state.reports.live(state.roster, self._clock())
        return state.reports.series.groups(state.supervised.name, live)

    def _parts(self) -> list[Part]:
        thread = self._thread
        if thread is None or self.status.state.is_over:
            return []
        return [Part("the workers' supervisor", self._sign.due, not thread.is_alive())]

    # --- for the supervisor's thread

    def run(self) -> None:
        """Lead the workers until all have ended, or an error of this code ends the supervisor."""
        self._thread = threading.current_thread()
        try:
            self._sign.during(self._loop)
        except BaseException as error:
            roster = self._state.roster.failed(describe(error))
            self._state = replace(self._state, roster=roster)
            self._publish(
                msgspec.structs.replace(self.status, state=FleetState.FAILED, error=roster.error)
            )
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections, free the port, and publish the last metrics."""
        self._launcher.close()
        self.served.close()

    def _loop(self) -> None:
        interval = self._state.roster.rules.heartbeat_interval
        next_beat = self._clock()
        while not self._state.roster.state.is_over:
            expect()
            now = self._clock()
            if now >= next_beat:
                next_beat = now + interval
                self._send_heartbeat()
            self._change_to(self._state.checked_shutdown(now))
            self._reconcile()
            due = min(next_beat, self._state.roster.next_action_at(now))
            pause = max(0.0, due - self._clock())
            expect(pause)
            try:
                self._handle(*self._events.get(timeout=pause))
                while True:
                    self._handle(*self._events.get_nowait())
            except queue.Empty:
                pass

    def _handle(self, what: object, change: Change) -> None:
        _log.debug("%s: %s", self._title, what)
        self._change_to(change(self._state, self._clock()))

    def _change_to(self, state: SupervisorState) -> None:
        for level, line in state.unlogged:
            _log.log(level, "%s", line)
        self._state = replace(state, unlogged=())

    def _send_heartbeat(self) -> None:
        self._launcher.send(Ping())
        self._change_to(self._state.checked_waiting(self._clock()))
        moving = [
            member.worker_id
            for member in self._state.roster.members.values()
            if not member.must_leave and member.state in AT_WORK
            if self._must_move(member.worker_id)
        ]
        self._change_to(self._state.decommissioned(moving))

    def _must_move(self, worker_id: str) -> bool:
        expect(_CALL)
        return self._launcher.must_move(self._state.reports.workers[worker_id].hello)

    def _reconcile(self) -> None:
        now = self._clock()
        before = self._state.restarts.count
        state, actions = self._state.reconciled(now)
        self._change_to(state)
        if (again := state.restarts.count - before) > 0:
            self.served.metrics.add(FLEET_RESTARTS, (), again)
        for action in actions:
            self._execute(action)
        self._publish(self._state.status(now))

    def _publish(self, status: FleetStatus) -> None:
        if status.state.is_over:
            self.served.stop_serving()
        with self._changed:
            self.status = status
            self._changed.notify_all()

    def _execute(self, action: Action) -> None:
        _log.debug("%s: %s", self._title, action)
        expect(_CALL)
        launcher = self._launcher
        match action:
            case Submit(job, slots):
                launcher.submit(job, slots)
            case Cancel(job, at_once):
                launcher.cancel(job, at_once=at_once)
            case SendStart(worker_id):
                launcher.send(Start(), worker_id)
            case SendWait(worker_id):
                launcher.send(Wait(), worker_id)
            case SendShutDown(worker_id):
                launcher.send(ShutDown(self._state.shutdown_within), worker_id)
            case Disconnect(worker_id):
                launcher.drop(worker_id)


_HERE = {WorkerState.RUNNING, WorkerState.LEAVING}

Groups = list[tuple[Mapping[str, str], tuple[Series, ...]]]


def why_not_live(workers: Iterable[WorkerStatus]) -> list[str]:
    """Return which loops of which workers stand still or have died. Pure.

    A lost worker does not count: another one takes its place.
    """
    return [
        f"worker {worker.worker_id}: {why}"
        for worker in workers
        if worker.state in _HERE
        for why in worker.not_live
    ]


def why_not_ready(status: FleetStatus) -> list[str]:
    """Return why no worker sees the lease table; nothing if one does. Pure."""
    if status.state is not FleetState.RUNNING:
        return [f"the workers are {status.state.value}"]
    running = [one for one in status.workers if one.state is WorkerState.RUNNING]
    if not running:
        return ["no worker runs"]
    if not all(worker.not_ready for worker in running):
        return []
    return [f"worker {one.worker_id}: {why}" for one in running for why in one.not_ready]


def gauges_of(status: FleetStatus) -> list[Sample]:
    """Return the gauges of all workers together. Pure.

    A worker that has to start counts as waiting until it reports; one that leaves is not counted.
    """
    states = [worker.state for worker in status.workers]
    waiting = status.waiting + states.count(WorkerState.STARTING)
    return [
        Sample(FLEET_WANTED, (), status.wanted),
        Sample(FLEET_RUNNING, (), states.count(WorkerState.RUNNING)),
        Sample(FLEET_WAITING, (), waiting),
    ]


class SupervisorPages:
    """Takes the measurements of the supervisor, and serves pages if the option ``http`` is set."""

    def __init__(self, supervised: Supervised[Any], status: Callable[[], FleetStatus]) -> None:
        """Takes the port, before anything else. Raises `OptionError`.

        status: returns the status of all, in any thread, from `serve` on.
        """
        self._labels = {"application": supervised.name}
        self._status = status
        self._served = serving(supervised.http, self._labels)
        try:
            own = () if self._served is None else (self._served,)
            measured = Measured.fleet(supervised.name, supervised.place)
            self.metrics: Metrics = metrics_of(supervised.metrics, measured, *own)
            """Takes the measurements of the supervisor, until `close`."""
            self.metrics.watch(lambda: gauges_of(status()))
        except BaseException:
            self.stop_serving()
            raise

    @property
    def url(self) -> str | None:
        """The address of the pages; None if they are not served."""
        served = self._served
        return None if served is None else served.server.url

    def serve(self, live: Liveness, groups: Callable[[], Groups]) -> None:
        """Serve the pages. ``groups``: returns the series of the workers."""
        served = self._served
        if served is None:
            return
        served.server.serve(
            pages(
                live=lambda: [*live.problems(), *why_not_live(self._status().workers)],
                ready=lambda: why_not_ready(self._status()),
                status=self._status,
                groups=lambda: [(self._labels, served.series()), *groups()],
            ),
            live.check,
        )

    def stop_serving(self) -> None:
        """Free the port."""
        served, self._served = self._served, None
        if served is not None:
            served.close()

    def close(self) -> None:
        """Free the port, and publish the last metrics."""
        self.stop_serving()
        self.metrics.close()
