"""The loop of a worker that starts, watches and reaps its shard consumers, and ends the worker.

It reports the worker's progress: each minute, and at the end.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import (
    EventLoopBlocked,
    LeaseEnd,
    Listener,
    ShutdownOverdue,
    WorkerEnded,
    WorkerReport,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.moving.checkpoint_search import checkpoint_at
from sparkinesis.metrics.health.liveness import expect
from sparkinesis.status import ShardStatus
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.worker.lifecycle.loops import WorkerLoop
from sparkinesis.worker.lifecycle.shard.consumer import ShardConsumer, WorkerHooks
from sparkinesis.worker.lifecycle.shard.lag import Warnings
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class ConsumerLoop(WorkerLoop):
    """Runs a shard consumer for each lease that the worker holds, until all have ended."""

    name = "consume"
    does = "runs the shard consumers"

    _reported: dict[str, float] = field(default_factory=dict)
    """Start times of the calls that were reported for `processing_time_limit`, by lease."""
    _read_by_others: set[StreamIdentifier | None] | None = None
    """The streams whose released leases other workers took; None until that is known."""

    def __post_init__(self) -> None:
        settings = self.settings
        first = settings.options.standstill_warning
        self._warnings = None if first is None else Warnings(first)
        self._progress = WorkerProgress(
            settings.worker_id,
            settings.clock,
            settings.publish,
            self.state.records_total,
            REPORT_EVERY if first is None else min(first, REPORT_EVERY),
        )
        self._log_place = LogPlace(settings.application, settings.worker_id)

    @property
    def until(self) -> threading.Event:
        return self.state.shutdown.ended

    def run(self) -> None:
        limit = self.settings.options.processing_time_limit
        pause = min(1.0, self.settings.options.renew_interval, limit or 1.0)
        while not self._update():
            expect()
            self._progress.step(self._status)
            left = self.state.shutdown.seconds_left
            seconds = min(pause, left) if left else pause
            expect(seconds)
            self.state.wait_for_change(seconds)
            expect()
        self._end_worker()

    def _status(self) -> list[ShardStatus]:
        now = self.settings.clock()
        consumers = self.state.consumers.items()
        return [each.view.status(key, each.state, now) for key, each in consumers]

    def _update(self) -> bool:
        """Bring the consumers in line with the leases held; returns True when none is left."""
        try:
            return self._update_consumers()
        except Exception:  # noqa: BLE001 - or no shard would be consumed, and nothing shut down
            _log.exception("Updating the shard consumers failed and will be retried.")
            return False

    def _update_consumers(self) -> bool:
        state = self.state
        self._reap_ended()
        held = self.coordinator.held()
        if state.force_overdue_shutdown() and state.consumers:
            self.settings.publish(ShutdownOverdue(tuple(sorted(state.consumers))))
        for consumer in list(state.consumers.values()):
            lease = consumer.held
            if state.shutdown.is_forced:
                self._release(lease, LeaseEnd.SHUTDOWN)
            if not lease.is_held():
                consumer.request(ShutdownReason.LEASE_LOST)
            elif (
                state.shutdown.is_requested
                or lease.handoff_to is not None
                or self.streams.get(lease.stream) is None
            ):
                consumer.request(ShutdownReason.REQUESTED)
        self._look_at_event_loop()
        if state.shutdown.is_requested:
            for key, lease in held.items():
                if key not in state.consumers:
                    self._release(lease, LeaseEnd.SHUTDOWN)
            return state.shutdown.is_forced or not state.consumers
        for key, lease in held.items():
            if key in state.consumers or not lease.is_held():
                continue
            stream = self.streams.get(lease.stream)
            if stream is None:
                self._release(lease, LeaseEnd.STREAM_LEFT)
            else:
                self._start_consumer(lease, stream)
        self._check_processing_time()
        self._check_standstills()
        return False

    def _reap_ended(self) -> None:
        """Remove the consumers that have ended."""
        state = self.state
        for key, consumer in list(state.consumers.items()):
            if not consumer.has_ended:
                continue
            if not consumer.is_complete:
                consumer.report.died()
                consumer.batcher.close()
                self._release(consumer.held, LeaseEnd.CONSUMER_DIED)
            with state.changed:
                del state.consumers[key]
                state.records_of_ended += consumer.view.records
                if (error := consumer.view.stopped_by) is not None:
                    if self.settings.reads is not None:
                        state.fail(error)  # nobody else would replay the shard
                    state.note_stop(key, error, consumer.held.released)
                if consumer.has_read_range and self.settings.reads is not None:
                    self.settings.reads.done.add(key)
            self._reported.pop(key, None)
            if self._warnings is not None:
                self._warnings.forget(key)
            if consumer.held.lease.is_finished:
                for other in state.consumers.values():
                    other.wake()  # its children may begin

    def _start_consumer(self, lease: HeldLease, stream: OpenStream) -> None:
        state = self.state
        consumer = ShardConsumer(
            lease,
            stream.settings,
            self._hooks(stream),
            replace(self._log_place, shard=lease.key),
        )
        state.add(lease.key, consumer)
        consumer.start()

    def _hooks(self, stream: OpenStream) -> WorkerHooks:
        state = self.state
        return WorkerHooks(
            are_finished=self.coordinator.are_finished,
            create_child_leases=stream.ends.create_child_leases,
            open_retrieval=stream.retrieval.open,
            place_at=partial(self._place_at, stream.settings.client),
            doubt_stream=self.streams.doubt,
            request_shutdown=state.request_shutdown,
            is_shutting_down=lambda: state.shutdown.is_requested,
            fail=state.fail,
            note_end=state.notify,
        )

    def _check_processing_time(self) -> None:
        """Report each call of ``process_records`` that exceeds the limit, once."""
        limit = self.settings.options.processing_time_limit
        if limit is None:
            return
        now = self.settings.clock()
        for key, consumer in self.state.consumers.items():
            since = consumer.view.processing_since
            if since is None or now - since <= limit or self._reported.get(key) == since:
                continue
            self._reported[key] = since
            give_up = self.settings.options.give_up_after_limit
            consumer.report.took_too_long(now - since, limit, gives_up=give_up)
            if give_up:
                self._release(consumer.held, LeaseEnd.PROCESSING_TIME)
                consumer.request(ShutdownReason.LEASE_LOST)

    def _check_standstills(self) -> None:
        """Warn of shards that stand still, less and less often, and say when they go on."""
        warnings = self._warnings
        if warnings is None:
            return
        now = self.settings.clock()
        for key, consumer in self.state.consumers.items():
            if consumer.fetching.is_paused or not consumer.held.is_held():
                warnings.forget(key)
                continue
            standstill = consumer.view.standstill
            if (seconds := warnings.over(key, standstill, now)) is not None:
                consumer.report.went_on(seconds)
            if standstill is not None and warnings.due(key, standstill, now):
                seconds = now - standstill.since
                since_ms = self.settings.timing.wall_clock_ms() - round(seconds * 1000)
                consumer.report.stands_still(seconds, since_ms, str(standstill.why))

    def _look_at_event_loop(self) -> None:
        """Cancel the coroutines that are overdue; report one that blocks the event loop."""
        loop = self.settings.calls.loop
        if loop is None:
            return
        if self.state.shutdown.is_forced:
            loop.cancel()
        if (blocked := loop.look()) is not None:
            worker_id = self.settings.worker_id
            self.settings.publish(EventLoopBlocked(worker_id, blocked.seconds, blocked.where))

    def _release(self, lease: HeldLease, why: LeaseEnd) -> None:
        with contextlib.suppress(SparkinesisError):  # the lease's event has the error
            lease.release(why)

    def _place_at(
        self, client: StreamClient, shard_id: str, instant_ms: int
    ) -> ExtendedSequenceNumber | None:
        if not self.coordinator.snapshot.may_have_java_readers:
            return None
        return checkpoint_at(client, shard_id, instant_ms, self.settings.timing.sleep)

    # --- the end

    def _end_worker(self) -> None:
        state = self.state
        state.shutdown.stop_renewing.set()
        for loop in state.loops:
            if loop is not threading.current_thread():
                expect(self.settings.options.failover_time)
                loop.join(self.settings.options.failover_time)
        expect()
        for lease in self.coordinator.held().values():
            # The lease was taken while the shutdown was requested.
            self._release(lease, LeaseEnd.SHUTDOWN)
        try:
            self.coordinator.withdraw_requests()
        except SparkinesisError as error:
            _log.warning("Declining assigned leases failed; they will expire: %s", error)
        if state.failure is None and not state.shutdown.is_forced:
            for stream in self.streams.finished():
                stream.retrieval.finish(partial(self._is_last_reader, stream.id))
        self._progress.report_end(
            was_forced=state.shutdown.is_forced,
            error=None if state.failure is None else describe(state.failure),
        )
        state.end()
        self.settings.fetchers.close()
        self.settings.consumers.close()

    def _wait_while_shutting_down(self, seconds: float) -> bool:
        """Wait; return False if the shutdown's time is up before, as soon as it is."""
        state, until = self.state, self.settings.clock() + seconds
        while not state.shutdown.is_forced and (left := until - self.settings.clock()) > 0:
            expect(left)
            state.wait_for_change(min(left, state.shutdown.seconds_left))
            state.force_overdue_shutdown()
        return not state.shutdown.is_forced

    def _is_last_reader(self, stream: StreamIdentifier | None) -> bool:
        """Wait for other workers to take a stream's released leases; return True if none did.

        Returns False once the shutdown's time is up.
        """
        if self._read_by_others is None:
            # A worker that renews its leases scans the table every other interval.
            if not self._wait_while_shutting_down(3 * self.settings.options.taker_interval):
                return False
            try:
                self._read_by_others = self.coordinator.streams_of_others()
            except SparkinesisError as error:
                _log.warning("Checking for other running workers failed: %s", error)
                return False
        return stream not in self._read_by_others and self._wait_while_shutting_down(0.0)


REPORT_EVERY = 60.0
"""Seconds between two reports."""


class WorkerProgress:
    """Reports a worker's progress. For one thread."""

    def __init__(
        self,
        worker_id: str,
        clock: Callable[[], float],
        publish: Listener,
        records_total: Callable[[], int],
        standing_after: float = REPORT_EVERY,
    ) -> None:
        """``standing_after``: seconds after which a report names a shard that stands still."""
        self._worker_id = worker_id
        self._clock = clock
        self._publish = publish
        self._records_total = records_total
        """Returns the number of user records processed since the worker's start."""
        self._standing_after = standing_after
        self._began = self._reported_at = clock()
        self._reported = 0
        """The number of records at the last report."""

    def step(self, status: Callable[[], Sequence[ShardStatus]]) -> None:
        """Report if a minute has passed. ``status``: returns the state of each shard."""
        now = self._clock()
        if now - self._reported_at < REPORT_EVERY:
            return
        shards = sorted(status(), key=lambda one: one.lease)
        records = self._records_total()
        known = {one.lease: lag for one in shards if (lag := one.millis_behind_latest) is not None}
        furthest = max(known, key=known.__getitem__, default=None)
        standing = [
            (one.lease, one.standing_for)
            for one in shards
            if one.standing_for is not None and one.standing_for >= self._standing_after
        ]
        self._publish(
            WorkerReport(
                now - self._reported_at,
                len(shards),
                records - self._reported,
                None if furthest is None else known[furthest],
                furthest,
                tuple(sorted(standing, key=lambda one: -one[1])),
            )
        )
        self._reported_at, self._reported = now, records

    def report_end(self, *, was_forced: bool, error: str | None) -> None:
        """Report the end of the worker."""
        seconds = self._clock() - self._began
        self._publish(
            WorkerEnded(self._worker_id, seconds, self._records_total(), was_forced, error)
        )
