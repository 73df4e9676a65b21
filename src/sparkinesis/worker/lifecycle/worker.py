"""A worker: takes leases, and runs a shard consumer for each lease that it holds.

Four threads, one for each loop: `RenewalLoop`, `CoordinatorLoop` and `ShardSyncLoop` of
`sparkinesis.worker.lifecycle.loops`, and `ConsumerLoop`; with several streams `StreamLoop`, too.
Two pools have more, as many as are busy at a time: one fetches pages ahead for all shards, and one
runs the shard consumers, which call the record processors.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparkinesis.errors import OptionError
from sparkinesis.events import WorkerStarted
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.metrics.health.liveness import CHECK_EVERY, Liveness, SignOfLife
from sparkinesis.public import public
from sparkinesis.status import Failure, ShardStatus, StreamStatus
from sparkinesis.stream.fan_out.current_subscription import socket_watch
from sparkinesis.stream.position import InitialPosition
from sparkinesis.worker.lifecycle.consumer_loop import ConsumerLoop
from sparkinesis.worker.lifecycle.loops import (
    CoordinatorLoop,
    RenewalLoop,
    ShardSyncLoop,
    StreamLoop,
    WorkerLoop,
)
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.streams.open_stream import Streams
from sparkinesis.worker.lifecycle.worker_state import SharedState, lease_named
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.gauges import LeaseCounts, WorkerGauges, WorkerSnapshot
from sparkinesis.worker.reporting.health import WorkerParts, slow_calls
from sparkinesis.worker.reporting.log_context import LogPlace

if TYPE_CHECKING:
    from sparkinesis.metrics.health.pages import HealthServer, ServedTally

_LOOPS = (RenewalLoop, CoordinatorLoop, ShardSyncLoop, ConsumerLoop)


@public
class Worker:
    """Consumes shards of a stream or several, in threads of its own. Made by `Application.worker`.

    All methods are for any thread. KCL users know it as ``Scheduler``.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        coordinator: LeaseCoordinator,
        streams: Streams,
        initial: InitialPosition,
    ) -> None:
        self.log_place: LogPlace = LogPlace(settings.application, settings.worker_id)
        """Names the application and the worker in the log lines of the worker's threads."""
        self._settings = settings
        self._coordinator = coordinator
        self._streams = streams
        self._initial = initial
        self._state = SharedState(settings)
        pools = {
            "the pool that fetches": settings.fetchers.part,
            "the pool that runs record processors": settings.consumers.part,
        }
        if settings.options.retrieval == "efo":
            pools["the thread that watches subscriptions"] = socket_watch().part
        self._parts = WorkerParts(pools)
        every = settings.watched_every or CHECK_EVERY
        self._live = Liveness(self._parts.now, settings.clock, every)
        self._http: HealthServer | None = None

    def start(self) -> Worker:
        """Check the streams and the lease table, create missing leases, and start the threads.

        With enhanced fan-out, also register the consumer. Of several streams, one that cannot be
        read now is opened later; see `streams`.

        Raises `StreamNotFoundError`, `LeaseTableError`, `AccessDeniedError`, `ServiceError`,
        `LeaseTableUnavailableError`, `ConsumerLimitError` or `DuplicateWorkerIdError` before any
        lease was taken, and RuntimeError if the worker was started before.
        """
        state, settings = self._state, self._settings
        if state.loops:
            raise RuntimeError("A worker can be started only once. Make another worker.")
        try:
            self._coordinator.require_unique_worker_id(state.shutdown.stop_taking.wait)
            self._streams.begin(state.shutdown.stop_taking.wait)
        except BaseException:
            state.end_reports()
            raise
        if state.shutdown.is_requested:
            state.end()
            return self
        kinds: list[type[WorkerLoop]] = [*_LOOPS]
        if self._streams.may_change:
            kinds.append(StreamLoop)
        loops = [kind(state, settings, self._coordinator, self._streams) for kind in kinds]
        self._publish_start()
        state.watch(
            WorkerGauges(settings.worker_id, lambda: self._coordinator.snapshot, self._snapshot)
        )
        for loop in loops:
            sign = SignOfLife(settings.clock)
            thread = threading.Thread(
                target=self.log_place.run,
                args=(sign.during, loop.run) if settings.watched_every else (loop.run,),
                name=f"{settings.application}-{loop.name}",
                daemon=True,
            )
            state.loops.append(thread)
            thread.start()
            self._parts.add(f"the loop that {loop.does}", thread, sign, loop.until.is_set)
        return self

    def _snapshot(self, leases: LeaseCounts | None) -> WorkerSnapshot:
        unread = self._coordinator.unread_shards()
        consumers = self._state.running_consumers().values()
        return WorkerSnapshot(
            shards=self.status(),
            bytes_held=sum(each.batcher.bytes_held for each in consumers),
            leases_held=len(self._coordinator.held()),
            leases=leases,
            unread=None if unread is None else len(unread),
            unseen_for=self._state.table.scans.unseen_for,
            streams=self._streams.counts(),
            event_loop_lag=None if (loop := self._settings.calls.loop) is None else loop.lag,
        )

    def serve(self, served: ServedTally) -> None:
        """Serve health and metrics by HTTP until the worker ends."""
        self._http = served.server
        served.answer(
            {"application": self._settings.application, "worker": self._settings.worker_id},
            live=self.why_not_live,
            ready=self.why_not_ready,
            status=self._whole_status,
            look=self._live.check,
        )

    def look_at_health(self) -> None:
        """Note which loops are late, for `why_not_live` without an HTTP server."""
        self._live.check()

    def _publish_start(self) -> None:
        settings = self._settings
        settings.publish(
            WorkerStarted(
                settings.worker_id,
                settings.application,
                str(self._streams),
                settings.options.retrieval,
                str(self._initial),
                settings.options.failover_time,
            )
        )

    def request_shutdown(self, timeout: float | None = None) -> None:
        """Begin a graceful shutdown, and return at once. See `shutdown`."""
        self._state.request_shutdown(timeout)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Shut down gracefully, and wait until the worker has ended.

        Each shard's current batch is finished, its processor may checkpoint in
        ``shutdown_requested``, and its lease is released, so that other workers take it at once.

        timeout: seconds until leases are released without waiting for record processors; None:
        the option ``shutdown_timeout``. If the shutdown was requested before, the earlier of the
        two ends counts.

        Returns True if all record processors had finished in time. Returns False at once when
        called by a record processor, which cannot wait for itself.
        """
        state, options = self._state, self._settings.options
        state.request_shutdown(timeout)
        if self._settings.consumers.runs_here():
            return False
        if not state.loops:
            state.end()  # never started, or starting failed
        # The thread that runs the consumers ends the shutdown, however it was requested.
        has_ended = state.shutdown.ended.wait(state.shutdown.seconds_left + options.failover_time)
        return has_ended and not state.shutdown.is_forced

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker has ended, at most ``timeout`` seconds; returns True if it has.

        Raises the error that ended the worker, if one did.
        """
        ended = self._state.shutdown.ended.wait(timeout)
        if ended and self._state.failure is not None:
            raise self._state.failure
        return ended

    def pause(self, shard: str | None = None) -> bool:
        """Pause a shard, until `resume`, such as while a system downstream does not keep up.

        The worker keeps the lease, and fetches and delivers nothing: pages that wait are dropped,
        and fetched again later. A call that runs goes on to its end, and what was processed is
        checkpointed as ever. A record that failed is tried again after the pause. A pause ends
        with the lease: a worker that takes the shard, this one too, reads the shard.

        shard: a shard's id, or the key of its lease, which distinguishes shards of several streams.
        None: all shards, also those that this worker takes later.

        Returns False, and does nothing, if this worker does not read the shard now. Raises
        `OptionError` if no lease of the application has the name.
        """
        return self._state.pause(self._key_of(shard), is_paused=True)

    def resume(self, shard: str | None = None) -> bool:
        """End the pause of a shard, or with None of all shards. Takes and returns as `pause`.

        A shard that has ended meanwhile, and whose lease was deleted, is no error.

        Reading resumes where delivery ended. Records that retention has trimmed in the meantime
        are reported as lost; those that ``skip_older_than`` skips are not delivered.
        """
        try:
            key = self._key_of(shard)
        except OptionError:
            return False
        return self._state.pause(key, is_paused=False)

    def restart(self, shard: str | None = None) -> None:
        """Let this worker take a shard again that ``on_error`` has stopped, at its checkpoint.

        The worker takes the lease within its next scans of the lease table, unless another worker
        has it. ``sparkinesis restart`` does so for all workers.

        shard: a shard's id, or the key of its lease. None: all shards that are stopped.

        Raises `OptionError` if the shard is not stopped on this worker, or none is.
        """
        if not self._state.restart(self._key_of(shard)):
            stopped = ", ".join(sorted(self._state.stopped_shards)) or "none"
            raise OptionError(
                f"{shard or 'No shard'} is {'not ' if shard else ''}stopped on this worker; those "
                f"that are: {stopped}."
            )

    def _key_of(self, shard: str | None) -> str | None:
        """Return the key of the lease of a shard that a program names. Raises `OptionError`."""
        if shard is None:
            return None
        known = {row.key for row in self._coordinator.snapshot.leases}
        known |= self._state.running_consumers().keys() | self._state.stopped_shards.keys()
        return lease_named(shard, known)

    @property
    def is_shutting_down(self) -> bool:
        """True once a shutdown was requested, or the worker has failed."""
        return self._state.shutdown.is_requested

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the worker, or is ending it."""
        return self._state.failure

    @property
    def problem(self) -> str | None:
        """The reason why the worker can hold no leases now; None if there is none.

        There is one: the lease table was deleted. `failures` has the whole error.
        """
        if self._state.table.missing is None:
            return None
        return "the lease table was deleted"

    @property
    def http_url(self) -> str | None:
        """The URL under which the worker serves health and metrics, with the option ``http``.

        None without the option, and once the worker has ended.
        """
        return None if self._http is None or self._state.shutdown.ended.is_set() else self._http.url

    @property
    def is_at_work(self) -> bool:
        """True while a shard's records are processed or its processor is called."""
        return self._settings.consumers.is_at_work

    def look_at_time(self) -> None:
        """Have the worker look at the clock of its ``timing``, after a test has moved it."""
        self._settings.fetchers.look_at_time()
        self._settings.consumers.look_at_time()
        self._state.notify()

    def why_not_live(self) -> tuple[str, ...]:
        """Return which loops and pools of the worker stand still or have died; () if all go on.

        With the option ``unhealthy_after_limit`` also the calls of ``process_records`` beyond
        ``processing_time_limit``.
        """
        options = self._settings.options
        limit = options.processing_time_limit if options.unhealthy_after_limit else None
        return (*self._live.problems(), *slow_calls(self.status(), limit))

    def why_not_ready(self) -> tuple[str, ...]:
        """Return why the worker is not ready; () if it sees the lease table, leases or not."""
        state = self._state
        if state.shutdown.is_requested:
            return ("the worker is shutting down",)
        return tuple(why for why in (self.problem, state.table.scans.problem()) if why is not None)

    def _whole_status(self) -> dict[str, object]:
        return {
            "application": self._settings.application,
            "worker": self._settings.worker_id,
            "is_shutting_down": self.is_shutting_down,
            "not_live": self.why_not_live(),
            "not_ready": self.why_not_ready(),
            "problem": self.problem,
            "records": self.records_total(),
            "shards": self.status(),
            "streams": self.streams(),
            "unread_shards": self.unread_shards(),
            "stopped_shards": {
                key: describe(one.error) for key, one in dict(self._state.stopped_shards).items()
            },
            "failures": self.failures(),
        }

    @property
    def was_graceful(self) -> bool:
        """True unless a shutdown was forced."""
        return not self._state.shutdown.is_forced

    def status(self) -> list[ShardStatus]:
        """Return the state of each shard that the worker consumes, in order of lease keys."""
        now = self._settings.clock()
        return [
            consumer.view.status(key, consumer.state, now)
            for key, consumer in sorted(self._state.running_consumers().items())
        ]

    def streams(self) -> tuple[StreamStatus, ...]:
        """Return the state of each stream, in the order of the application; () for a single one.

        A stream that cannot be read is tried again, less and less often; the others are read.
        """
        now, problems = self._settings.clock(), {}
        for key, consumer in sorted(self._state.running_consumers().items(), reverse=True):
            if (problem := consumer.view.tasks.problem) is not None:
                problems[key.rpartition(":")[0]] = problem
        return tuple(
            replace(one, problem=describe(found[0]), failing_for=now - found[1])
            if one.problem is None and (found := problems.get(one.identifier or "")) is not None
            else one
            for one in self._streams.statuses()
        )

    def unread_shards(self) -> dict[str, float] | None:
        """Return the shards that no live worker reads, and for how many seconds, by lease key.

        A shard is unread if its lease has no owner, or an owner that has missed two renewals, by
        this worker's last scan of the lease table. The seconds count from the last renewal that
        this worker has seen. Returns None if the table could not be scanned for a failover time.
        """
        return self._coordinator.unread_shards()

    def records_total(self) -> int:
        """Return the number of user records processed since the start.

        Counts all shards that the worker consumes or has consumed.
        """
        return self._state.records_total()

    def failures(self) -> tuple[Failure, ...]:
        """Return the errors of record processors and tasks, in order of the last occurrence.

        The last 50 different errors are kept. Errors because of a lost lease are not counted.
        """
        return self._settings.failures.snapshot()
