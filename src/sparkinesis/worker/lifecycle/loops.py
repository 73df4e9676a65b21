"""The loops of a worker that take care of its leases, each run by a thread of its own.

The loop that runs the shard consumers is in `sparkinesis.worker.lifecycle.consumer_loop`.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from sparkinesis.errors import (
    DuplicateWorkerIdError,
    LeaseTableNotFoundError,
    SparkinesisError,
)
from sparkinesis.events import ShardSyncFailed, ShardSyncRecovered, TakingFailed, TakingRecovered
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.lease import Lease, leases_by_stream
from sparkinesis.lease.rules.audit import audits
from sparkinesis.metrics.health.liveness import expect, waiting
from sparkinesis.metrics.repeats import Repeats
from sparkinesis.status import ShardState
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.streams.open_stream import OpenStream, Streams
from sparkinesis.worker.lifecycle.worker_state import SharedState

_log = logging.getLogger(__name__)

_TOGETHER = 1.0
"""Seconds between two rounds of shard syncs of several streams."""
_SHORTEST = 0.001
"""The shortest wait in seconds. A wait of a rounding error would be repeated for ever."""
_LOOK_AGAIN = 1.0
"""Seconds until the next step while there is no stream to sync, or after an error."""


@dataclass(eq=False)
class WorkerLoop:
    """A loop of a worker: steps, one after the other, until the worker may end.

    A step handles its errors, or the loop would end. `ConsumerLoop` has no steps: it
    waits for what its consumers do.
    """

    state: SharedState
    settings: WorkerSettings
    coordinator: LeaseCoordinator
    streams: Streams

    name: ClassVar[str]
    does: ClassVar[str]
    """What the loop does, for people."""

    @property
    def until(self) -> threading.Event:
        """The event of the worker after which the loop may end: here, a shutdown is requested."""
        return self.state.shutdown.stop_taking

    def run(self) -> None:
        until = self.until
        while not until.is_set():
            expect()
            pause = self.step()
            expect(pause)
            until.wait(pause)

    def step(self) -> float:
        """Take a step; return the seconds until the next one."""
        raise NotImplementedError


class RenewalLoop(WorkerLoop):
    """Renews the leases that the worker holds, until the worker has released them."""

    name = "renew"
    does = "renews leases"

    @property
    def until(self) -> threading.Event:
        return self.state.shutdown.stop_renewing

    def step(self) -> float:
        began = self.settings.clock()
        self._measure_throughput()
        try:
            self.coordinator.renew()
        except Exception:  # noqa: BLE001 - or all leases would be lost
            _log.exception("Lease renewal failed and will be retried.")
        self.state.notify()
        return self.settings.options.renew_interval - (self.settings.clock() - began)

    def _measure_throughput(self) -> None:
        """Note each shard's throughput in its lease, for the next renewal.

        In KiB a second, as an exponential average by halves, as the KCL's ``LeaseStatsRecorder``.
        """
        for consumer in self.state.running_consumers().values():
            fetched, held = consumer.batcher.take_byte_count(), consumer.held
            rate = fetched / 1024 / self.settings.options.renew_interval
            before = held.throughput_kbps
            held.throughput_kbps = rate if before is None else (rate + before) / 2


@dataclass(eq=False)
class CoordinatorLoop(WorkerLoop):
    """Reads the lease table, and takes leases for this worker, until a shutdown is requested."""

    name = "take"
    does = "takes leases"

    _failing_since: float | None = None

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.settings.clock)

    def run(self) -> None:
        super().run()
        self.coordinator.leave()

    def step(self) -> float:
        began, interval = self.settings.clock(), self.settings.options.taker_interval
        due_in = self.coordinator.due_in()
        if due_in > 0:
            return max(min(due_in, interval), _SHORTEST)
        pause: float | None = None
        try:
            self.streams.settle(self.coordinator.snapshot.leases)
            self.coordinator.take(
                self.state.busy_leases(),
                self.state.shutdown.stop_taking.is_set,
                self.streams.may_take,
                self.streams.wants,
                self.streams.mark,
            )
            pause = self.coordinator.due_in()
            self.state.table.scans.note()
            self._note_success()
            self.state.note_restarts(self.coordinator.snapshot.leases)
            if self.coordinator.snapshot.leases:
                self.state.table.note_found()
        except LeaseTableNotFoundError as error:
            self.state.table.scans.note_failure(error)
            self.state.table.note_missing(error)
        except SparkinesisError as error:
            self.state.table.scans.note_failure(error)
            if self._failing_since is None:
                self._failing_since = began
            if times := self._repeats.note(str(error)):
                self.settings.publish(TakingFailed(str(error), times))
        except Exception as error:  # noqa: BLE001 - or no crashed worker's leases would be taken
            self.state.table.scans.note_failure(error)
            _log.exception("Taking leases failed and will be retried.")
        self._wake_children()
        self.state.notify()
        if impostors := self.coordinator.duplicate_worker_leases:
            self.state.fail(self._duplicate_worker_id(impostors))
        took = self.settings.clock() - began
        # A large table is scanned less often, so that the thread has time for other work. But a
        # machine that was suspended, or a clock that was moved, makes no scan long.
        pause = interval - took if pause is None else min(pause, interval)
        return max(pause, min(took, 10 * interval))

    def _note_success(self) -> None:
        since, self._failing_since = self._failing_since, None
        if since is not None:
            self._repeats.end()
            self.settings.publish(TakingRecovered(self.settings.clock() - since))

    def _wake_children(self) -> None:
        """Wake consumers whose parent shards are finished by the last scan of the lease table."""
        unfinished = self.coordinator.snapshot.unfinished
        for consumer in self.state.running_consumers().values():
            waits = consumer.state is ShardState.WAITING_ON_PARENT_SHARDS
            if waits and unfinished.isdisjoint(consumer.held.lease.parent_keys):
                consumer.wake()

    def _duplicate_worker_id(self, lease_keys: tuple[str, ...]) -> DuplicateWorkerIdError:
        settings = self.settings
        return DuplicateWorkerIdError(
            f"Another live worker of the application {settings.application!r} has the worker id "
            f"{settings.worker_id!r}: it renews {', '.join(lease_keys[:5])}. Give each worker an "
            "id of its own, or leave worker_id out to have one made. No data is lost: leases and "
            "checkpoints are unchanged."
        )


@dataclass(eq=False)
class ShardSyncLoop(WorkerLoop):
    """Keeps the leases in step with the streams' shards, until a shutdown is requested."""

    name = "shards"
    does = "syncs shards"

    _due: dict[StreamIdentifier | None, float] = field(default_factory=dict)
    """The time of each stream's next step; a stream that was opened a moment ago has none."""
    _problems: dict[StreamIdentifier | None, str] = field(default_factory=dict)
    """The error of each stream's last step, if it failed."""

    def step(self) -> float:
        try:
            return self._step_all()
        except Exception:  # noqa: BLE001 - or it would never be done again
            _log.exception("Shard sync failed and will be retried.")
            return self.settings.options.cleanup_interval

    def _step_all(self) -> float:
        """Take the steps that are due; return the seconds until the next."""
        now = self.settings.clock()
        streams = {stream.id: stream for stream in self.streams.all()}
        due = [stream for key, stream in streams.items() if self._due.get(key, now) <= now]
        seen = self.coordinator.snapshot
        leases = leases_by_stream(seen.leases) if due else {}
        tips = self._times_at_tip() if due else {}
        for stream in due:
            if self.state.shutdown.stop_taking.is_set():
                break
            expect()
            own = leases.get(stream.id, [])
            is_auditor = audits(self.settings.worker_id, own, seen)
            pause = self._step(stream, own, tips.get(stream.id, {}), audits=is_auditor)
            self._due[stream.id] = self.settings.clock() + pause
        self._due = {key: at for key, at in self._due.items() if key in streams}
        self._problems = {key: text for key, text in self._problems.items() if key in streams}
        soonest = min(self._due.values(), default=now + _LOOK_AGAIN)
        # Streams whose steps are due at about the same time share one grouping of the leases.
        pause = soonest - self.settings.clock()
        return max(pause, _TOGETHER if len(streams) > 1 else _SHORTEST)

    def _step(
        self,
        stream: OpenStream,
        leases: Sequence[Lease],
        tips: Mapping[str, float],
        *,
        audits: bool,
    ) -> float:
        """Sync one stream's shards; return the seconds until the next time."""
        pause = self.settings.options.cleanup_interval
        try:
            pause = stream.syncer.step(leases, audits=audits)
            pause = min(pause, stream.closed_shards.check(tips))
            if self._problems.pop(stream.id, None):
                address = stream.settings.client.address
                self.settings.publish(ShardSyncRecovered(address.name, str(address)))
        except LeaseTableNotFoundError as error:
            _log.debug("The thread that takes leases reports the missing table: %s", error)
        except SparkinesisError as error:
            if self._problems.get(stream.id) != str(error):
                address = stream.settings.client.address
                self.settings.publish(ShardSyncFailed(address.name, str(address), str(error)))
            self._problems[stream.id] = str(error)
        except Exception:  # noqa: BLE001 - or no other stream would be synced
            _log.exception("Shard sync failed and will be retried.")
        return pause

    def _times_at_tip(self) -> dict[StreamIdentifier | None, dict[str, float]]:
        """Return the shards whose readers are at the tip, and since when, by stream."""
        tips: dict[StreamIdentifier | None, dict[str, float]] = defaultdict(dict)
        for consumer in self.state.running_consumers().values():
            since = consumer.batcher.last_page.time_at_tip.since
            if since is not None:
                tips[consumer.held.stream][consumer.held.shard_id] = since
        return tips


class StreamLoop(WorkerLoop):
    """Opens and leaves the streams of an application of several, as they come and go."""

    name = "streams"
    does = "opens streams"

    def step(self) -> float:
        pause = _LOOK_AGAIN
        try:
            pause = self.streams.update(waiting(self.state.shutdown.stop_taking.wait))
        except Exception:  # noqa: BLE001 - or no stream would be opened any more
            _log.exception("Looking at the streams failed and will be retried.")
        self.state.notify()
        return pause
