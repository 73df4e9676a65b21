"""What other threads see of a shard: its lag, what it waits for, what was processed of it."""

from __future__ import annotations

from sparkinesis.lease.held import HeldLease
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.batcher import Batcher
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.lifecycle.shard.fetching import ShardFetching
from sparkinesis.worker.lifecycle.shard.lag import (
    NAMED_AFTER,
    Reading,
    Standstill,
    TaskWatch,
    millis_behind,
)
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason


class ShardView:
    """Reads the state of one shard's consumer. For any thread: nothing is waited for."""

    def __init__(
        self,
        held: HeldLease,
        settings: ConsumerSettings,
        fetching: ShardFetching,
        batcher: Batcher,
    ) -> None:
        self.tasks = TaskWatch(settings.clock)
        self.deliverer: Deliverer | None = None
        """None until the record processor is initialized."""
        self.read_to: ShutdownReason | None = None
        """The end up to which all records are delivered: of the shard, or of a replay's range."""
        self._held = held
        self._settings = settings
        self._fetching = fetching
        self._batcher = batcher

    @property
    def processing_since(self) -> float | None:
        """The start of the current call of ``process_records`` by the worker's clock; or None."""
        return self.deliverer.calls.processing_since if self.deliverer is not None else None

    @property
    def records(self) -> int:
        """The number of user records processed, without those of failed calls."""
        return self.deliverer.calls.records if self.deliverer is not None else 0

    @property
    def stopped_by(self) -> BaseException | None:
        """The error for which ``on_error`` stopped the shard; None if it did not."""
        return self.deliverer.stopped_by if self.deliverer is not None else None

    def millis_behind(self, now: float) -> int | None:
        """Return the lag, which is at least the age of what is held; None if it is not known.

        It is not known of a paused shard, which grows old unseen and by intent, nor at the end of
        the shard: the next records are in other shards, which may have no leases yet.
        """
        if self.read_to is ShutdownReason.SHARD_END or self._fetching.is_paused:
            return None
        oldest_at = None if self.deliverer is None else self.deliverer.calls.oldest_at
        if oldest_at is None:
            oldest_at = self._batcher.waiting_since
        heard_at = None if self._batcher.end is not None else self._fetching.heard_at
        return millis_behind(
            Reading(
                self._batcher.last_page.millis_behind_latest,
                None if heard_at is None else now - heard_at,
                None if oldest_at is None else now - oldest_at,
            ),
            self._settings.options.idle_time,
        )

    @property
    def standstill(self) -> Standstill | None:
        """Since when the shard makes no progress, and why; see `TaskWatch.standstill`."""
        deliverer = self.deliverer
        if deliverer is None:
            return self.tasks.standstill(None, None)
        return self.tasks.standstill(deliverer.front, deliverer.automatic.refused_since)

    def status(self, key: str, state: ShardState, now: float) -> ShardStatus:
        """Return the shard's state at a time by the worker's clock; ``key``: of its lease."""
        lag, standstill, deliverer = self.millis_behind(now), self.standstill, self.deliverer
        standing_for = None if standstill is None else max(0.0, now - standstill.since)
        is_long = standing_for is not None and standing_for >= NAMED_AFTER
        return ShardStatus(
            shard_id=self._held.shard_id,
            state=state,
            millis_behind_latest=lag,
            processing_for=None if (since := self.processing_since) is None else now - since,
            records=self.records,
            dropped=self._batcher.dropped,
            stream=self._settings.client.address.name,
            lease=key,
            checkpoint=str(self._held.lease.checkpoint),
            checkpoint_age=None if deliverer is None else deliverer.checkpointer.age,
            paused_for=None if (since := self._fetching.paused_since) is None else now - since,
            page_millis_behind_latest=(
                None if lag is None else self._batcher.last_page.millis_behind_latest
            ),
            standing_for=standing_for,
            standing_because=str(standstill.why) if standstill is not None and is_long else "",
        )
