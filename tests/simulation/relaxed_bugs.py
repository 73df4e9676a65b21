"""Deliberate bugs in automatic checkpoints, and in reading children beside their parents."""

from __future__ import annotations

from typing import Any

from sparkinesis.lease.shard_syncer import ShardSyncer
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.shard.automatic_checkpoints import AutomaticCheckpoints
from sparkinesis.worker.lifecycle.shard.consumer import ShardConsumer
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.lifecycle.shard.last_calls import LastCalls
from tests.simulation.patches import always
from tests.simulation.subject import Bug, instead

_COVER = "automatic_checkpoints_cover_processed_records"
_COUNT = "no_more_than_the_interval_is_repeated"
_TIME = "automatic_checkpoints_come_in_time"


def _by_count_only(_: Any) -> Any:
    def due_in(self: Any) -> float | None:
        return 0.0 if self._most is not None and self._records >= self._most else None

    return property(due_in)


def _go_on(check: Any) -> Any:
    """Delivery goes on when a checkpoint that is due could not be written."""

    def go_on(self: Any) -> None:
        check(self)

    return go_on


def _not_at_the_end(write: Any) -> Any:
    def not_at_the_end(self: Any) -> None:
        if self._checkpointer._permitted.end is None:
            write(self)

    return not_at_the_end


def _begin_with_the_call(processed: Any) -> Any:
    """The time counts from the last call, not from the first one that is not checkpointed."""

    def count(self: Any, batch: Any, since: float) -> None:
        processed(self, batch, since)
        self._since = None if self._since is None else since

    return count


def _wait_for_parents(block: Any) -> Any:
    def wait(self: Any) -> float | None:
        is_done = self._worker.are_finished(self.held.lease.parent_ids)
        return None if is_done else self._options.parent_poll_interval

    return wait


RELAXED_BUGS: dict[str, Bug] = {
    "an automatic checkpoint covers a failed batch": instead(
        Checkpointer, "take_back", always(None), _COVER, 16
    ),
    "batches are not cut at the next automatic checkpoint": instead(
        AutomaticCheckpoints, "room", lambda _: property(lambda self: None), _COUNT, 0
    ),
    "processing goes on without a checkpoint that is due": instead(
        Deliverer, "_checkpoint_if_due", _go_on, _COUNT, 4
    ),
    "automatic checkpoints are not due by time": instead(
        AutomaticCheckpoints, "due_in", _by_count_only, _TIME, 6
    ),
    "the time counts from the last call": instead(
        AutomaticCheckpoints, "processed", _begin_with_the_call, _TIME, 6
    ),
    "nothing is checkpointed automatically at a shutdown": instead(
        LastCalls, "checkpoint", always(None), "shutdowns_checkpoint_what_was_processed", 186
    ),
    "the end of a shard is not checkpointed automatically": instead(
        AutomaticCheckpoints, "write", _not_at_the_end, "every_shard_is_read", 2
    ),
    "children wait for their parents although they need not": instead(
        ShardConsumer, "_block_on_parent", _wait_for_parents, "children_begin_at_once", 11
    ),
    "children get leases only when their parents end": instead(
        ShardSyncer, "_create_early_children", always(None), "children_get_leases_in_time", 11
    ),
}
