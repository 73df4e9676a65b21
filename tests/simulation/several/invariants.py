"""The invariants of an application of several streams.

Those of one stream hold for each of them; see `parts`. The others tell the streams apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation import checkpoint_rules, costs, delivery, lease_rules, memory, order
from tests.simulation.relaxed_rules import RELAXED
from tests.simulation.rules import broken
from tests.simulation.several.former import (
    former_leases_are_deleted_by_the_rules,
    former_streams_are_left,
)
from tests.simulation.several.neighbours import (
    leases_are_renewed_in_time,
    other_streams_are_read_in_time,
)
from tests.simulation.several.parts import all_parts, current_parts
from tests.simulation.several.world import SeveralWorld
from tests.simulation.world import World

_OF_ALL: tuple[Callable[[World], Iterator[str]], ...] = (
    delivery.no_thread_ends_by_an_error,
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

_OF_EACH: tuple[Callable[[World], Iterator[str]], ...] = (
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

_OF_EACH_IN_THE_END: tuple[Callable[[World], Iterator[str]], ...] = (
    lease_rules.nothing_is_left_to_clean_up,
    delivery.everything_is_processed,
)


def streams_are_kept_apart(world: SeveralWorld) -> Iterator[str]:
    """A record processor is given records of its own stream only, and not of another epoch's."""
    for entry in world.journal.entries:
        if entry.what == "stray":
            yield f"at {entry.at:.3f} {entry.process} was given, as {entry.shard}, {entry.about}"


def leases_name_their_streams(world: SeveralWorld) -> Iterator[str]:
    """Each lease is of a shard of a stream that is there, or was, and says so in its row."""
    for write in world.table.writes:
        if write.after is None:
            continue
        life, shard = world.life_of(write.key), write.key.rpartition(":")[2]
        if life is None or shard not in life.producer.shards:
            yield f"at {write.at:.3f} {write.by} wrote the lease {write.key} of no shard"
            continue
        told = {name: write.after.get(name, {}).get("S") for name in ("streamName", "shardId")}
        if told != {"streamName": life.identifier, "shardId": shard}:
            yield f"at {write.at:.3f} {write.by} wrote {told} into the lease {write.key}"


_OF_STREAMS: tuple[Callable[[SeveralWorld], Iterator[str]], ...] = (
    streams_are_kept_apart,
    leases_name_their_streams,
    former_streams_are_left,
    former_leases_are_deleted_by_the_rules,
    other_streams_are_read_in_time,
    leases_are_renewed_in_time,
)


def check(world: SeveralWorld) -> list[str]:
    """All that is wrong with a world, by the invariants' names."""
    wrong = [*broken(_OF_STREAMS, world), *broken(_OF_ALL, world.as_one())]
    for part in all_parts(world):
        if any(entry.what == "stray" for entry in part.journal.entries):
            continue  # places in it are those of another stream
        wrong += broken(_OF_EACH, part, part.life.identifier)
    for part in current_parts(world):
        wrong += broken(_OF_EACH_IN_THE_END, part, part.life.identifier)
    return wrong
