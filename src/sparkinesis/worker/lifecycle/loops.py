"""The loops of a worker that look after its leases, each run by a thread of its own.

The loop that runs the shard consumers is in `sparkinesis.worker.lifecycle.consumer_loop`.
"""

from __future__ import annotations

import logging

from sparkinesis.errors import (
    DuplicateWorkerIdError,
    LeaseTableNotFoundError,
    SparkinesisError,
)
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.shard_syncer import ShardSyncer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.states import ShardState
from sparkinesis.worker.lifecycle.worker_state import WorkerState
from sparkinesis.worker.retrieval.closed_shards import ClosedShards

_log = logging.getLogger(__name__)


class RenewalLoop:
    """Renews the leases that the worker holds, until the worker has released them."""

    def __init__(
        self, state: WorkerState, settings: ConsumerSettings, coordinator: LeaseCoordinator
    ) -> None:
        self._state = state
        self._clock = settings.clock
        self._interval = settings.options.renew_interval
        self._coordinator = coordinator

    def run(self) -> None:
        while not self._state.stop_renewing.is_set():
            began = self._clock()
            self._measure_throughput()
            try:
                self._coordinator.renew()
            except Exception:  # noqa: BLE001 - or all leases would be lost
                _log.exception("Lease renewal failed and will be retried.")
            self._state.notify()
            self._state.stop_renewing.wait(self._interval - (self._clock() - began))

    def _measure_throughput(self) -> None:
        """Note each shard's throughput in its lease, for the next renewal.

        In KiB a second, as an exponential average by halves, as the KCL's ``LeaseStatsRecorder``.
        """
        for consumer in self._state.running_consumers().values():
            fetched, held = consumer.intake.take_byte_count(), consumer.held
            rate = fetched / 1024 / self._interval
            before = held.throughput_kbps
            held.throughput_kbps = rate if before is None else (rate + before) / 2


class AssignmentLoop:
    """Reads the lease table, and takes leases for this worker, until a shutdown is requested."""

    def __init__(
        self, state: WorkerState, settings: ConsumerSettings, coordinator: LeaseCoordinator
    ) -> None:
        self._state = state
        self._settings = settings
        self._clock = settings.clock
        self._interval = settings.options.taker_interval
        self._coordinator = coordinator

    def run(self) -> None:
        while not self._state.stop_taking.is_set():
            began = self._clock()
            is_unsettled = False
            try:
                is_unsettled = self._coordinator.take(
                    self._state.busy_shards(), self._state.stop_taking.is_set
                )
                if self._coordinator.snapshot.leases:
                    self._state.note_table()
            except LeaseTableNotFoundError as error:
                self._state.note_missing_table(error)
            except SparkinesisError as error:
                _log.warning("Taking leases failed and will be retried: %s", error)
            except Exception:  # noqa: BLE001 - or no crashed worker's leases would be taken
                _log.exception("Taking leases failed and will be retried.")
            self._wake_children()
            self._state.notify()
            if impostors := self._coordinator.duplicate_worker_leases:
                self._state.fail(self._duplicate_worker_id(impostors))
            took = self._clock() - began
            pause = (self._interval / 3 if is_unsettled else self._interval) - took
            # A large table is scanned less often, so that the thread has time for other work.
            self._state.stop_taking.wait(max(pause, took))

    def _wake_children(self) -> None:
        """Wake consumers whose parent shards are finished by the last scan of the lease table."""
        for consumer in self._state.running_consumers().values():
            waits = consumer.state is ShardState.WAITING_ON_PARENT_SHARDS
            if waits and self._coordinator.seem_finished(consumer.held.lease.parent_ids):
                consumer.wake()

    def _duplicate_worker_id(self, lease_keys: tuple[str, ...]) -> DuplicateWorkerIdError:
        settings = self._settings
        return DuplicateWorkerIdError(
            f"Another live worker of the application {settings.application!r} has the worker id "
            f"{settings.worker_id!r}: it renews {', '.join(lease_keys[:5])}. Give each worker an "
            "id of its own, or leave worker_id out to have one made. No data is lost: leases and "
            "checkpoints are unchanged."
        )


class ShardSyncLoop:
    """Keeps the leases in step with the stream's shards, until a shutdown is requested."""

    def __init__(
        self,
        state: WorkerState,
        settings: ConsumerSettings,
        coordinator: LeaseCoordinator,
        shard_syncer: ShardSyncer,
    ) -> None:
        self._state = state
        self._interval = settings.options.cleanup_interval
        self._coordinator = coordinator
        self._shard_syncer = shard_syncer
        self._closed_shards = ClosedShards(settings.client, settings.clock)

    def run(self) -> None:
        while not self._state.stop_taking.is_set():
            pause = self._interval
            try:
                seen = self._coordinator.snapshot
                pause = self._shard_syncer.step(seen.leases, seen.expired)
                pause = min(pause, self._closed_shards.look(self._times_at_tip()))
            except LeaseTableNotFoundError as error:
                _log.debug("The thread that takes leases reports the missing table: %s", error)
            except SparkinesisError as error:
                _log.warning("Shard sync failed and will be retried: %s", error)
            except Exception:  # noqa: BLE001 - or it would never be done again
                _log.exception("Shard sync failed and will be retried.")
            self._state.stop_taking.wait(pause)

    def _times_at_tip(self) -> dict[str, float]:
        """Return the shards whose readers are at the tip, and since when (worker's clock)."""
        consumers = self._state.running_consumers().items()
        tips = ((shard_id, consumer.intake.time_at_tip.since) for shard_id, consumer in consumers)
        return {shard_id: since for shard_id, since in tips if since is not None}
