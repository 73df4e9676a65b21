"""The invariants of every world of record processors, whatever its history.

Each invariant is a function over what was recorded, and yields its violations as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation import checkpoint_rules, costs, counting, delivery, lease_rules, memory, order
from tests.simulation.fan_out import FAN_OUT
from tests.simulation.holding import HOLDING
from tests.simulation.led_rules import LED
from tests.simulation.relaxed_rules import RELAXED
from tests.simulation.rules import broken, no_thread_ends_by_an_error
from tests.simulation.store_rules import STORE
from tests.simulation.world import World

Invariant = Callable[[World], Iterator[str]]

OF_SHARDS: tuple[Invariant, ...] = (
    delivery.readers_resume_where_they_should,
    order.keys_keep_their_order,
    order.parents_come_first,
    delivery.shutdown_is_requested_before_release,
    delivery.records_given_up_were_tried_alone,
    delivery.stopped_shards_are_left_alone,
    checkpoint_rules.checkpoints_that_return_are_stored,
    checkpoint_rules.checkpoints_never_go_back,
    checkpoint_rules.checkpoints_are_requested,
    checkpoint_rules.only_the_owner_checkpoints,
    lease_rules.expired_leases_are_not_processed,
    lease_rules.leases_are_lost_for_a_reason,
    lease_rules.leases_begin_where_they_should,
    lease_rules.finished_leases_have_children,
    lease_rules.foreign_attributes_stay,
    lease_rules.leases_are_deleted_in_time,
    *RELAXED,
)
"""Of what happened to the shards of one stream."""

IN_THE_END: tuple[Invariant, ...] = (
    lease_rules.nothing_is_left_to_clean_up,
    delivery.everything_is_processed,
)
"""Of the shards of one stream that is still to be read."""

OF_WORKERS: tuple[Invariant, ...] = (
    no_thread_ends_by_an_error,
    delivery.calls_never_overlap,
    delivery.calls_follow_the_life_cycle,
    delivery.readers_get_a_final_call,
    delivery.every_shard_is_read,
    delivery.workers_leave,
    lease_rules.only_a_twin_ends_a_worker,
    memory.memory_is_within_its_budget,
    memory.memory_is_given_back,
    memory.empty_shards_get_memory_at_once,
    costs.calls_stay_within_budgets,
    costs.shards_are_not_read_too_fast,
    costs.leases_are_renewed_together,
)
"""Of workers, whatever number of streams they read."""

INVARIANTS = (
    *OF_WORKERS,
    *OF_SHARDS,
    *IN_THE_END,
    *counting.COUNTING,
    *FAN_OUT,
    *LED,
    *HOLDING,
    *STORE,
)


def check(world: World) -> list[str]:
    """All that is wrong with a world, by the invariants' names."""
    return list(broken(INVARIANTS, world))
