"""The state that the threads of a worker share."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from sparkinesis.errors import LeaseTableNotFoundError, OptionError, listed
from sparkinesis.events import ShutdownBegan, TableFound, TableMissing, WorkerFailed
from sparkinesis.lease.lease import Lease, parse_lease_key
from sparkinesis.lease.moving.stopped_shards import still_stopped
from sparkinesis.metrics.metrics import ReadGauges
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.shard.consumer import ShardConsumer
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.health import TableScans

_log = logging.getLogger(__name__)


class StoppedShard(NamedTuple):
    """A shard that ``on_error`` has stopped on this worker."""

    error: BaseException
    marked_at: int | None
    """See `still_stopped`."""


class Shutdown:
    """How far a worker is with its end. Any thread may ask; it changes within the state's lock."""

    # The order of the end, by what the worker's loops wait for:
    #
    # 1. A shutdown is requested. No more leases are taken, and no shards synced. Each consumer ends
    #    with its processor's last call and checkpoint, and releases its lease. Leases are renewed
    #    meanwhile, or other workers would take them.
    # 2. The time is up: leases are released without waiting for processors. This bounds every
    #    shutdown; one that a record processor had requested, or that followed a failure, waited
    #    without end for a processor that hung.
    # 3. The last consumer has ended: no lease is renewed any more.
    # 4. The last events and metrics are published: the worker has ended.

    def __init__(self, clock: Callable[[], float]) -> None:
        self.stop_taking = threading.Event()
        """Set when a shutdown is requested."""
        self.stop_renewing = threading.Event()
        """Set when the last consumer has ended."""
        self.ended = threading.Event()
        self.is_requested = False
        self.is_forced = False
        self._clock = clock
        self._give_up_at = math.inf
        """The time, by the worker's clock, at which a shutdown stops waiting for processors."""

    def request(self, seconds: float) -> bool:
        """Begin to shut down, or wait no longer than ``seconds``; return True the first time."""
        is_first = not self.is_requested
        self.is_requested = True
        self._give_up_at = min(self._give_up_at, self._clock() + seconds)
        self.stop_taking.set()
        return is_first

    @property
    def seconds_left(self) -> float:
        """Seconds until a shutdown stops waiting for record processors; infinite without one."""
        return max(0.0, self._give_up_at - self._clock())

    def force_if_overdue(self) -> bool:
        """Stop waiting for record processors if the time is up; return True if this call does."""
        if self.is_forced or self.seconds_left > 0:
            return False
        self.is_forced = True
        return True


class TableState:
    """What a worker knows of its lease table. For the thread that takes leases; any may read."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.scans = TableScans(settings.clock, settings.options.failover_time)
        self.missing: LeaseTableNotFoundError | None = None
        """The error of a lease table that was deleted, until the table is there again."""
        self._settings = settings

    def note_missing(self, error: LeaseTableNotFoundError) -> None:
        """Log once, and count as a failure, that the lease table was deleted."""
        if self.missing is None:
            worker_id = self._settings.worker_id
            what = f"The worker {worker_id} keeps running, but without leases"
            self._settings.failures.note(None, what, error)
            self._settings.publish(TableMissing(worker_id, str(error)))
        self.missing = error

    def note_found(self) -> None:
        """Note that the lease table has leases."""
        if self.missing is not None:
            self._settings.publish(TableFound(self._settings.worker_id))
        self.missing = None


class SharedState:
    """A worker's shutdown, and its shard consumers. For any thread.

    Only the thread that starts and reaps consumers changes these.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.changed = threading.Condition()
        """Guards the consumers; notified by `notify`."""
        self.shutdown = Shutdown(settings.clock)
        self.table = TableState(settings)
        self.failure: BaseException | None = None
        """The error that ended the worker, or is ending it."""
        self.loops: list[threading.Thread] = []
        self.consumers: dict[str, ShardConsumer] = {}
        """By lease key."""
        self.stopped_shards: dict[str, StoppedShard] = {}
        """By lease key."""
        self.records_of_ended = 0
        """User records processed by consumers that have ended."""
        self.pauses_all = False
        """True to pause each shard as soon as its consumer begins."""
        self._settings = settings
        self._is_dirty = False
        self._unwatch: Callable[[], None] | None = lambda: None
        """Ends `watch`, if gauges are read; None once all is published."""

    def watch(self, gauges: ReadGauges) -> None:
        """Let the worker's gauges be read, until `end`."""
        self._unwatch = self._settings.metrics.watch(gauges)

    def end(self) -> None:
        """Note that the worker has ended; publish its last events and metrics before."""
        self.end_reports()
        self.shutdown.ended.set()

    def end_reports(self) -> None:
        """Publish the last events and metrics, once: the worker has ended, or could not start."""
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()
            self._settings.publish.close()
            self._settings.metrics.close()

    def add(self, key: str, consumer: ShardConsumer) -> None:
        """Take in a consumer that is not started yet, under its lease key."""
        with self.changed:
            if self.pauses_all:
                consumer.pause()
            self.consumers[key] = consumer

    def pause(self, key: str | None, *, is_paused: bool) -> bool:
        """Pause or resume the shard of a lease, or all, with those that the worker takes later.

        Returns False if the worker does not read the shard.
        """
        with self.changed:
            if key is None:
                self.pauses_all = is_paused
                found = list(self.consumers.values())
            else:
                found = [self.consumers[key]] if key in self.consumers else []
            for consumer in found:
                if is_paused:
                    consumer.pause()
                else:
                    consumer.resume()
            return key is None or bool(found)

    def note_stop(self, key: str, error: BaseException, released: Lease | None) -> None:
        """Leave a shard alone until it is restarted. ``released``: its row afterwards, if known."""
        is_marked = released is not None and self._settings.worker_id in released.stopped_by
        marked_at = released.counter if released is not None and is_marked else None
        self.stopped_shards[key] = StoppedShard(error, marked_at)

    def note_restarts(self, leases: Iterable[Lease]) -> None:
        """Take up the shards that an operator has restarted, by a scan of the lease table."""
        if not self.stopped_shards:
            return  # the usual case, in which no scan has to be searched
        with self.changed:
            stopped = self.stopped_shards
            marks = {key: one.marked_at for key, one in stopped.items()}
            left = still_stopped(marks, leases, self._settings.worker_id)
            self.stopped_shards = {key: StoppedShard(stopped[key].error, left[key]) for key in left}
        for key in stopped.keys() - left.keys():
            _log.info("%s was restarted by an operator, and may be taken again.", key)

    def restart(self, key: str | None) -> bool:
        """Take up a stopped shard, or all; return False if there is none."""
        with self.changed:
            keys = {key} if key is not None else {*self.stopped_shards}
            found = keys & self.stopped_shards.keys()
            for each in found:
                del self.stopped_shards[each]
            return bool(found)

    def notify(self) -> None:
        """Wake the thread that runs the consumers."""
        with self.changed:
            self._is_dirty = True
            self.changed.notify_all()

    def wait_for_change(self, timeout: float) -> None:
        """Wait until `notify` is called, at most ``timeout`` seconds."""
        with self.changed:
            self.changed.wait_for(lambda: self._is_dirty, timeout)
            self._is_dirty = False

    def request_shutdown(self, timeout: float | None = None) -> None:
        """Begin a graceful shutdown, which waits for record processors for ``timeout`` seconds.

        None: the option ``shutdown_timeout``. Of several requests, the one that ends first counts.
        """
        seconds = self._settings.options.shutdown_timeout if timeout is None else timeout
        with self.changed:
            is_first = self.shutdown.request(seconds)
            self.notify()
        if is_first and self.loops:
            error = None if self.failure is None else describe(self.failure)
            worker_id = self._settings.worker_id
            self._settings.publish(ShutdownBegan(worker_id, len(self.consumers), error))

    def force_overdue_shutdown(self) -> bool:
        """Stop waiting for record processors if the time is up; return True if this call does."""
        with self.changed:
            return self.shutdown.force_if_overdue()

    def fail(self, error: BaseException) -> None:
        """Shut the worker down, and let `Worker.wait` raise ``error``."""
        if self.failure is None:
            worker_id = self._settings.worker_id
            self._settings.failures.note(None, f"The worker {worker_id} shuts down", error)
            raised = error if error.__traceback__ is not None else None
            self._settings.publish(WorkerFailed(worker_id, str(error)), raised)
            self.failure = error
        self.request_shutdown()

    def records_total(self) -> int:
        """Return the number of user records processed by all consumers since the start."""
        with self.changed:
            running = sum(each.view.records for each in self.consumers.values())
            return self.records_of_ended + running

    def running_consumers(self) -> dict[str, ShardConsumer]:
        """Return a copy of the consumers, by lease key."""
        with self.changed:
            return dict(self.consumers)

    def busy_leases(self) -> frozenset[str]:
        """Return the leases not to take: with a consumer here, stopped, or read to the end."""
        reads = self._settings.reads
        with self.changed:
            done = frozenset() if reads is None else frozenset(reads.done)
            return frozenset(self.consumers) | frozenset(self.stopped_shards) | done


def lease_named(shard: str, known: Collection[str]) -> str:
    """Return the key of the lease that ``shard`` names, of the known ones.

    Raises `OptionError` if there is none, or if shards of several streams have the id. Pure.
    """
    if shard in known:
        return shard
    found = sorted(key for key in known if parse_lease_key(key)[1] == shard)
    if not found:
        raise OptionError(
            f"There is no shard {shard!r} among the leases of the application: "
            f"{listed(sorted(known)) or 'it has none yet'}. Give the id of a shard, or the key of "
            "its lease."
        )
    if len(found) > 1:
        raise OptionError(
            f"The shard {shard!r} is one of {len(found)} streams. Give the key of its lease: "
            f"{listed(found)}."
        )
    return found[0]
