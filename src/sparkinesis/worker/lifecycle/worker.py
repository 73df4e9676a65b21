"""A worker: takes leases, and runs a shard consumer for each one that it holds.

Threads: one renews leases; one looks at the lease table and takes from it; one keeps leases in step
with the stream's shards; one starts and ends consumers; and each consumer has one for its record
processor and one that fetches ahead of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparkinesis.errors import DuplicateWorkerIdError, SparkinesisError
from sparkinesis.lease.caretaker import Caretaker
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.rules.shard_sync import ShardEnd
from sparkinesis.public import public
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.lifecycle.consumer import ShardConsumer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.states import ShardState, ShutdownReason
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.retrieval.ahead import OpenRetrieval, RetrievalMode
from sparkinesis.worker.retrieval.closed_shards import ClosedShards
from sparkinesis.worker.status import Failure, ShardStatus

_log = logging.getLogger(__name__)


@public
class Worker:
    """Runs in threads of its own between `start` and the end; all methods are for any thread."""

    def __init__(
        self,
        settings: ConsumerSettings,
        coordinator: LeaseCoordinator,
        caretaker: Caretaker,
        retrieval: RetrievalMode,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log_place = LogPlace(settings.application, settings.worker_id)
        """Whose log lines those of this worker's threads are."""
        self._settings = settings
        self._options = settings.options
        self._coordinator = coordinator
        self._caretaker = caretaker
        self._retrieval = retrieval
        self._closed_shards = ClosedShards(settings.client, clock)
        self._clock = clock
        self._changed = threading.Condition()
        self._dirty = False
        self._stop_taking = threading.Event()
        self._stop_renewing = threading.Event()
        self._consumers: dict[str, ShardConsumer] = {}
        self._records_of_ended = 0
        self._threads: dict[str, threading.Thread] = {}
        self._reported: dict[str, float] = {}
        self._stopped_shards: dict[str, BaseException] = {}
        self._failure: BaseException | None = None
        self._shutdown_requested = False
        self._shutdown_forced = False
        self._ended = threading.Event()
        self._loops: list[threading.Thread] = []

    # --- for any thread

    def start(self) -> Worker:
        """Make sure of stream, lease table, leases and registered consumer, then begin.

        The leases come first: where an application begins at the latest record, they say when that
        was, and a consumer may take its time to become active.

        Raises `StreamNotFoundError`, `LeaseTableError`, `AccessDeniedError`, `ServiceError`,
        `LeaseTableUnavailableError`, `ConsumerLimitError` or `DuplicateWorkerIdError`, before
        anything was taken; and RuntimeError for a worker that was started before.
        """
        if self._loops:
            raise RuntimeError("A worker can be started only once; make another one.")
        self._coordinator.refuse_to_double(self._stop_taking.wait)
        self._caretaker.sync()
        self._retrieval.prepare(self._stop_taking.wait)
        if self._shutdown_requested:
            self._ended.set()
            return self
        for name, loop in (
            ("renew", self._renew_leases),
            ("take", self._take_leases),
            ("shards", self._keep_in_step),
            ("consume", self._run_consumers),
        ):
            thread = threading.Thread(
                target=self.log_place.run,
                args=(loop,),
                name=f"{self._settings.application}-{name}",
                daemon=True,
            )
            self._loops.append(thread)
            thread.start()
        return self

    def request_shutdown(self) -> None:
        """Begin a graceful shutdown; returns at once. See `shutdown`."""
        with self._changed:
            self._shutdown_requested = True
            self._stop_taking.set()
            self._dirty = True
            self._changed.notify_all()

    def shutdown(self, timeout: float | None = None) -> bool:
        """Shut down gracefully, and wait for it.

        Each shard's batch at hand is finished, its processor may checkpoint in
        ``shutdown_requested``, and its lease is released for other workers to take at once.

        timeout: seconds, after which leases are released without waiting for processors any more;
        None: the option ``shutdown_timeout``. Returns whether all of them had finished by then;
        False at once to a record processor, which cannot be waited for by itself.
        """
        self.request_shutdown()
        if threading.current_thread() in list(self._threads.values()):
            return False
        if not self._loops:
            self._ended.set()  # never started, or it could not
        seconds = self._options.shutdown_timeout if timeout is None else timeout
        if self._ended.wait(seconds):
            return not self._shutdown_forced
        with self._changed:
            self._shutdown_forced = True
            self._dirty = True
            self._changed.notify_all()
        self._ended.wait(self._options.failover_time)
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the worker's end, at most ``timeout`` seconds; whether it has ended.

        Raises the error that ended it, if one did.
        """
        ended = self._ended.wait(timeout)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    @property
    def is_shutting_down(self) -> bool:
        """Whether a shutdown was requested, by anyone, or the worker has failed."""
        return self._shutdown_requested

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the worker, or is ending it."""
        return self._failure

    @property
    def was_graceful(self) -> bool:
        """Whether no shutdown had to be forced so far."""
        return not self._shutdown_forced

    def status(self) -> list[ShardStatus]:
        """What the worker does, by shard."""
        now = self._clock()
        with self._changed:
            consumers = sorted(self._consumers.items())
        return [
            ShardStatus(
                shard_id,
                consumer.state,
                consumer.millis_behind_latest,
                None if (since := consumer.processing_since) is None else now - since,
                consumer.records,
                consumer.intake.dropped,
            )
            for shard_id, consumer in consumers
        ]

    def records_total(self) -> int:
        """User records processed since the start, of all shards that this worker has or had."""
        with self._changed:
            return self._records_of_ended + sum(each.records for each in self._consumers.values())

    def failures(self) -> tuple[Failure, ...]:
        """Errors of record processors and tasks, in order of the last occurrence.

        The last 50 different ones; an error that came with a lost lease is none.
        """
        return self._settings.failures.snapshot()

    # --- Surroundings of consumers

    def are_finished(self, shard_ids: Sequence[str]) -> bool:
        return self._coordinator.are_finished(shard_ids)

    def lease_children(self, parent: HeldLease, children: Sequence[Shard], end: ShardEnd) -> bool:
        return self._caretaker.lease_children(parent, children, end)

    def place_at(self, shard_id: str, instant_ms: int) -> ExtendedSequenceNumber | None:
        if not self._coordinator.snapshot.may_be_javas:
            return None
        return self._caretaker.place_at(shard_id, instant_ms)

    @property
    def open_retrieval(self) -> OpenRetrieval:
        return self._retrieval.open

    def fail(self, error: BaseException) -> None:
        """Shut down, and let `wait` raise ``error``."""
        if self._failure is None:
            what = f"The worker {self._settings.worker_id} shuts down"
            self._settings.failures.note(None, what, error)
            raised = error if error.__traceback__ is not None else None
            _log.error("%s: %s", what, error, exc_info=raised)
            self._failure = error
        self.request_shutdown()

    # --- loops, each a thread

    def _renew_leases(self) -> None:
        while not self._stop_renewing.is_set():
            began = self._clock()
            self._measure_throughput()
            try:
                self._coordinator.renew()
            except Exception:  # noqa: BLE001 - or all leases would be lost
                _log.exception("Renewing leases failed, and will be tried again")
            self._tell()
            self._stop_renewing.wait(self._options.renew_interval - (self._clock() - began))

    def _measure_throughput(self) -> None:
        """By the KCL's ``LeaseStatsRecorder``: KiB a second, averaged exponentially by halves."""
        with self._changed:
            consumers = list(self._consumers.values())
        for consumer in consumers:
            fetched, held = consumer.intake.take_byte_count(), consumer.held
            rate = fetched / 1024 / self._options.renew_interval
            before = held.throughput_kbps
            held.throughput_kbps = rate if before is None else (rate + before) / 2

    def _take_leases(self) -> None:
        interval = self._options.taker_interval
        while not self._stop_taking.is_set():
            began = self._clock()
            is_unsettled = False
            try:
                is_unsettled = self._coordinator.take(self._busy_shards())
            except SparkinesisError as error:
                _log.warning("Taking leases failed, and will be tried again: %s", error)
            except Exception:  # noqa: BLE001 - or no crashed worker's leases would be taken
                _log.exception("Taking leases failed, and will be tried again")
            self._wake_children()
            self._tell()
            if impostors := self._coordinator.impostors:
                self.fail(_duplicate(self._settings, impostors))
            took = self._clock() - began
            pause = (interval / 3 if is_unsettled else interval) - took
            # A large table is looked at less often, so that looking is not all that is done.
            self._stop_taking.wait(max(pause, took))

    def _wake_children(self) -> None:
        """Consumers that wait for parents which the last look shows as finished may go on."""
        with self._changed:
            consumers = list(self._consumers.values())
        for consumer in consumers:
            waits = consumer.state is ShardState.WAITING_ON_PARENT_SHARDS
            if waits and self._coordinator.seem_finished(consumer.held.lease.parent_ids):
                consumer.wake()

    def _keep_in_step(self) -> None:
        while not self._stop_taking.is_set():
            pause = self._options.cleanup_interval
            try:
                look = self._coordinator.snapshot
                pause = self._caretaker.step(look.leases, look.expired)
                pause = min(pause, self._closed_shards.look(self._tips()))
            except SparkinesisError as error:
                _log.warning("Leases are not kept in step with shards just now: %s", error)
            except Exception:  # noqa: BLE001 - or it would never be done again
                _log.exception("Leases are not kept in step with shards just now")
            self._stop_taking.wait(pause)

    def _tips(self) -> dict[str, float]:
        """Since when shards have been read to their tips, by the worker's clock."""
        with self._changed:
            consumers = list(self._consumers.items())
        tips = ((shard_id, consumer.intake.time_at_tip.since) for shard_id, consumer in consumers)
        return {shard_id: since for shard_id, since in tips if since is not None}

    def _tell(self) -> None:
        with self._changed:
            self._dirty = True
            self._changed.notify_all()

    def _busy_shards(self) -> frozenset[str]:
        """Shards not to take: one that a consumer here still has, or that on_error stopped."""
        with self._changed:
            return frozenset(self._consumers) | frozenset(self._stopped_shards)

    def _run_consumers(self) -> None:
        while not self._has_ended():
            with self._changed:
                self._changed.wait_for(lambda: self._dirty, self._pause())
                self._dirty = False
        self._stop_renewing.set()
        for loop in self._loops:
            if loop is not threading.current_thread():
                loop.join(self._options.failover_time)
        for lease in self._coordinator.held().values():
            self._release(lease)  # one that was taken while the shutdown was requested
        try:
            self._coordinator.decline()
        except SparkinesisError as error:
            _log.warning("Leases given to this worker are left to expire: %s", error)
        if self._failure is None and not self._shutdown_forced:
            self._retrieval.finish(self._is_last)
        _log.info("The worker %s has ended", self._settings.worker_id)
        self._ended.set()

    def _is_last(self) -> bool:
        """Whether nobody has taken what this worker released, in the time of two looks."""
        with self._changed:
            two_looks = 2 * self._options.taker_interval
            if self._changed.wait_for(lambda: self._shutdown_forced, two_looks):
                return False
        try:
            return not self._coordinator.others()
        except SparkinesisError as error:
            _log.warning("Whether other workers go on cannot be seen: %s", error)
            return False

    def _pause(self) -> float:
        limit = self._options.processing_time_limit
        return min(1.0, self._options.renew_interval, limit or 1.0)

    def _has_ended(self) -> bool:
        try:
            return self._step()
        except Exception:  # noqa: BLE001 - or no shard would be consumed, and nothing shut down
            _log.exception("Looking after shard consumers failed, and will be tried again")
            return False

    def _step(self) -> bool:
        """Bring consumers in line with leases held; whether the worker has ended."""
        self._bury_dead()
        held = self._coordinator.held()
        for consumer in list(self._consumers.values()):
            lease = consumer.held
            if self._shutdown_forced:
                self._release(lease)
            if not lease.is_held():
                consumer.request(ShutdownReason.LEASE_LOST)
            elif self._shutdown_requested or lease.handoff_to is not None:
                consumer.request(ShutdownReason.REQUESTED)
        if self._shutdown_requested:
            for key, lease in held.items():
                if key not in self._consumers:
                    self._release(lease)
            return self._shutdown_forced or not self._consumers
        for lease in held.values():
            if lease.shard_id not in self._consumers and lease.is_held():
                self._consume(lease)
        self._watch_processing_time()
        return False

    def _consume(self, lease: HeldLease) -> None:
        consumer = ShardConsumer(lease, self._settings, self)

        def consume() -> None:
            try:
                consumer.run()
            finally:
                self._tell()

        thread = threading.Thread(
            target=replace(self.log_place, shard=lease.shard_id).run,
            args=(consume,),
            name=f"{self._settings.application}-{lease.shard_id}",
            daemon=True,
        )
        with self._changed:
            self._consumers[lease.shard_id] = consumer
        self._threads[lease.shard_id] = thread
        thread.start()

    def _bury_dead(self) -> None:
        for shard_id, consumer in list(self._consumers.items()):
            if self._threads[shard_id].is_alive() and not consumer.is_complete:
                continue
            if not consumer.is_complete:
                _log.error("The consumer of %s has ended without a word", consumer)
                consumer.intake.close()
                self._release(consumer.held)
            with self._changed:
                del self._consumers[shard_id]
                self._records_of_ended += consumer.records
                if consumer.stopped_by is not None:
                    self._stopped_shards[shard_id] = consumer.stopped_by
            del self._threads[shard_id]
            self._reported.pop(shard_id, None)
            if consumer.held.lease.is_finished:
                for other in self._consumers.values():
                    other.wake()  # its children may begin

    def _release(self, lease: HeldLease) -> None:
        try:
            lease.release()
        except SparkinesisError as error:
            _log.warning("The lease %s is left to expire: %s", lease.key, error)

    def _watch_processing_time(self) -> None:
        limit = self._options.processing_time_limit
        if limit is None:
            return
        now = self._clock()
        for shard_id, consumer in self._consumers.items():
            since = consumer.processing_since
            if since is None or now - since <= limit or self._reported.get(shard_id) == since:
                continue
            self._reported[shard_id] = since
            give_up = self._options.give_up_after_limit
            _log.error(
                "process_records has taken %.1f s on %s; processing_time_limit is %g s%s",
                now - since,
                consumer,
                limit,
                ": the shard is given up" if give_up else "",
            )
            if give_up:
                self._release(consumer.held)
                consumer.request(ShutdownReason.LEASE_LOST)


def _duplicate(settings: ConsumerSettings, shards: Sequence[str]) -> DuplicateWorkerIdError:
    return DuplicateWorkerIdError(
        f"Another live worker of the application {settings.application!r} has the worker id "
        f"{settings.worker_id!r}: it renews {', '.join(shards[:5])}. Give each worker an id of its "
        "own, or none, which makes one. Nothing is lost: leases and checkpoints are as they were."
    )
