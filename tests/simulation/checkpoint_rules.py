"""Invariants of checkpoints: who may write which, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkinesis.lease.lease import Lease
from tests.simulation.journal import Place
from tests.simulation.owed_records import excused
from tests.simulation.producer import ShardLog
from tests.simulation.replay import Replay
from tests.simulation.world import World

_AT_THE_END = ("~", 0)
"""A checkpoint after every place."""


def checkpoints_never_go_back(world: World) -> Iterator[str]:
    """Checkpoints only move forward, except by a reset."""
    moving = {(e.process, e.shard) for e in world.journal.entries if e.what == "resets"}
    for write, before, after in world.leases():
        if before is None or after is None or before.checkpoint <= after.checkpoint:
            continue
        name = "" if write.by is None else write.by.name
        is_moved = (name, write.key) in moving and after.checkpoint.is_sentinel
        if not is_moved and write.by not in world.table_writers.operators:
            yield (
                f"at {write.at:.3f} {write.by} moved the checkpoint of {write.key} from "
                f"{before.checkpoint} back to {after.checkpoint}"
            )


def checkpoints_that_return_are_stored(world: World) -> Iterator[str]:
    """When ``checkpoint`` returns, the row holds this checkpoint or a later one.

    Unless somebody moves the shard.
    """
    moved = {write.key for write in world.table.writes if write.by in world.table_writers.operators}
    moved |= {entry.shard for entry in world.journal.entries if entry.what == "resets"}
    reached: dict[str, Place] = {}
    changes = [
        (write.at, write.key, after.checkpoint)
        for write, _, after in world.leases()
        if after is not None and (after.is_finished or not after.checkpoint.is_sentinel)
    ]
    position = 0
    for entry in world.journal.entries:
        if entry.what != "checkpointed" or entry.shard in moved:
            continue
        while position < len(changes) and changes[position][0] <= entry.at:
            _, key, at = changes[position]
            place = _AT_THE_END if at.is_shard_end else (at.sequence_number, at.sub_sequence_number)
            reached[key] = max(reached.get(key, ("", 0)), place)
            position += 1
        if reached.get(entry.shard, ("", 0)) < entry.about:
            yield (
                f"at {entry.at:.3f} {entry.process} returned from checkpointing {entry.shard} at "
                f"{entry.about}, but the row was at {reached.get(entry.shard)}"
            )


def checkpoints_are_requested(world: World) -> Iterator[str]:
    """Each checkpoint was requested by a processor, and covers only records that were given to one.

    One that names no place takes in what ``on_error`` has given up behind what was processed.
    """
    moving = {(e.process, e.shard) for e in world.journal.entries if e.what == "resets"}
    replay: Replay | None = None
    looked_at: dict[str, int] = {}
    for write, before, after in world.leases():
        if before is None or after is None or before.checkpoint == after.checkpoint:
            continue
        if write.by is None or write.by in world.table_writers.operators:
            continue
        at, wanted = after.checkpoint, world.journal.claims.get(write.key)
        if at.is_sentinel and not at.is_shard_end:
            if (write.by.name, write.key) not in moving:
                yield f"at {write.at:.3f} {write.by} moved {write.key} to {at} without a request"
            continue
        log = world.producer.logs.get(write.key, ShardLog())
        until: Place = (at.sequence_number, at.sub_sequence_number)
        until = _AT_THE_END if at.is_shard_end else until
        handed = world.journal.handed.get(write.key, {})
        if wanted is None or not at <= wanted:
            asked = (
                ("", 0) if wanted is None else (wanted.sequence_number, wanted.sub_sequence_number)
            )
            behind = {log.data[log.index[place]] for place in handed if asked < place <= until}
            replay = replay or Replay(world)
            given_up = excused(world, replay) | excused(world, replay, write.at)
            if at.is_shard_end or until not in handed or not behind <= given_up:
                text = f"{write.by} checkpointed {write.key} at {at} without a request"
                yield f"at {write.at:.3f} {text}"
        for index in range(looked_at.get(write.key, 0), len(log.places)):
            place = log.places[index]
            if place > until:
                break
            looked_at[write.key] = index + 1
            if handed.get(place, float("inf")) <= write.at:
                continue
            replay = replay or Replay(world)
            # What it needs since it was moved, it may not have needed at that time.
            if log.data[index] not in excused(world, replay) | excused(world, replay, write.at):
                yield (
                    f"at {write.at:.3f} {write.by} checkpointed {write.key} at {at}, before "
                    f"anybody was given {log.data[index]}"
                )
                break


def _is_renewal(before: Lease, after: Lease) -> bool:
    """Return True for a write that raises the counter, and leaves all that it is raised for."""
    return (
        before.counter != after.counter
        and after.fencing_token is not None
        and before.fencing_token == after.fencing_token
        and (before.owner, before.checkpoint_owner, before.checkpoint)
        == (after.owner, after.checkpoint_owner, after.checkpoint)
    )


def only_the_owner_checkpoints(world: World) -> Iterator[str]:
    """Only the owner that the row names, and that wrote to it last, writes a checkpoint or renews.

    The specification's `OneWriter`. A process that acquires a lease raises the fencing token.
    """
    last: dict[str, Any] = {}
    for write, before, after in world.leases():
        if before is None or after is None:
            last.pop(write.key, None)
            continue
        if write.by not in world.table_writers.operators:
            is_checkpoint = before.checkpoint != after.checkpoint
            did = "checkpointed" if is_checkpoint else "renewed"
            owner = before.actual_owner
            is_owner = write.by is not None and world.fleet.worker_ids.get(write.by) == owner
            if is_checkpoint and not is_owner:
                text = f"{write.by} checkpointed {write.key}, whose owner is {owner}"
                yield f"at {write.at:.3f} {text}"
            is_its = is_checkpoint or (is_owner and _is_renewal(before, after))
            if is_its and last.get(write.key) is not write.by:
                yield (
                    f"at {write.at:.3f} {write.by} {did} {write.key} without having taken "
                    f"it from {last.get(write.key)}"
                )
        if before.counter != after.counter:
            last[write.key] = write.by
