"""What must be true of every world, whatever its history: one function each, over what was noted.

Each yields what contradicts it, in words. `check` asks all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, decode_lease
from tests.simulation.dynamodb import Write
from tests.simulation.fan_out import FAN_OUT
from tests.simulation.world import World

Invariant = Callable[[World], Iterator[str]]


def no_thread_ends_by_an_error(world: World) -> Iterator[str]:
    for task, error in world.scheduler.failures:
        yield f"the thread {task.name} of {task.process} ended by {error!r}"


def everything_is_processed(world: World) -> Iterator[str]:
    """Every record at least once, within bounded time of the end of all faults."""
    for data in world.unprocessed():
        shard, number = world.places[data]
        yield f"{data} ({shard} at {number}) was never processed"


def every_shard_is_read(world: World) -> Iterator[str]:
    """No lease is orphaned: each open shard is read, by one live worker, which the table names."""
    if world.settled_after is None:
        patience = world.history.patience
        yield f"{patience} s after the last fault not everything was in order: {world.unsettled}"


def workers_leave(world: World) -> Iterator[str]:
    """A graceful shutdown ends, and leaves neither threads nor leases.

    A finished lease may name its last owner, or who asked for it: it is nobody's to read.
    """
    if world.left_after is None:
        for process in world.live_processes():
            threads = sorted(task.name for task in process.tasks)
            yield f"{process} did not end; its threads are {threads}"
    left = {name for process, name in world.worker_ids.items() if not process.is_killed}
    for key, row in world.table.rows.items():
        lease = decode_lease(row)
        if lease is None or lease.is_finished:
            continue
        if {lease.owner, lease.checkpoint_owner} & left:
            yield f"{key} was left with owner {lease.owner}, from {lease.checkpoint_owner}"


def calls_never_overlap(world: World) -> Iterator[str]:
    for entry in world.journal.entries:
        if entry.what == "overlap":
            yield f"at {entry.at:.3f} {entry.about} was called while another call was running"


def each_reader_goes_on_where_it_is_told(world: World) -> Iterator[str]:
    """A record processor gets what follows its checkpoint, all of it, in order, once.

    Unless it raised: then again, from what it has checkpointed since, or else from what failed.
    """
    places = {
        shard: {number: place for place, number in enumerate(numbers)}
        for shard, numbers in world.put.items()
    }
    done: dict[tuple[str, str], int] = {}
    for entry in world.journal.entries:
        reader = (entry.process, entry.shard)
        place_of = places.get(entry.shard, {})
        if entry.what == "initialize":
            at: ExtendedSequenceNumber = entry.about
            done[reader] = -1 if at.is_sentinel else place_of[at.sequence_number]
        elif entry.what == "records":
            found = [place_of[number] for number in entry.about]
            expected = list(range(done[reader] + 1, done[reader] + 1 + len(found)))
            if found != expected:
                yield (
                    f"at {entry.at:.3f} {entry.process} was given the records {found} of "
                    f"{entry.shard}, and not {expected}"
                )
        elif entry.what == "processed":
            done[reader] = max(done[reader], place_of[entry.about[-1]])
        elif entry.what == "checkpointed":
            done[reader] = max(done[reader], place_of[entry.about])
        elif entry.what == "shard_ended" and done[reader] != len(place_of) - 1:
            yield (
                f"at {entry.at:.3f} {entry.process} was told of the end of {entry.shard} behind "
                f"record {done[reader]} of {len(place_of)}"
            )


def parents_come_first(world: World) -> Iterator[str]:
    """No record of a shard is given to anybody before its parents are finished in the table."""
    finished: dict[str, float] = {}
    for write, _, after in _leases(world):
        if after is not None and after.is_finished:
            finished.setdefault(write.key, write.at)
    parents = {shard.id: shard.parents for shard in world.stream.shards}
    for entry in world.journal.entries:
        if entry.what != "records":
            continue
        for parent in parents.get(entry.shard, ()):
            if finished.get(parent, float("inf")) > entry.at:
                yield (
                    f"at {entry.at:.3f} {entry.process} was given records of {entry.shard} before "
                    f"{parent} was finished"
                )


def checkpoints_never_go_back(world: World) -> Iterator[str]:
    for write, before, after in _leases(world):
        if before is not None and after is not None and not before.checkpoint <= after.checkpoint:
            yield (
                f"at {write.at:.3f} {write.by} moved the checkpoint of {write.key} from "
                f"{before.checkpoint} back to {after.checkpoint}"
            )


def checkpoints_are_asked_for(world: World) -> Iterator[str]:
    """No checkpoint is where no record processor wanted one, nor behind what nobody was given."""
    for write, before, after in _leases(world):
        if before is None or after is None or before.checkpoint == after.checkpoint:
            continue
        at, wanted = after.checkpoint, world.journal.claims.get(write.key)
        if wanted is None or not at <= wanted:
            yield f"at {write.at:.3f} {write.by} checkpointed {write.key} at {at}, unasked"
        handed = world.journal.handed.get(write.key, {})
        for number in world.put.get(write.key, []):
            is_done = at.is_shard_end or ExtendedSequenceNumber(number) <= at
            if is_done and handed.get(number, float("inf")) > write.at:
                yield (
                    f"at {write.at:.3f} {write.by} checkpointed {write.key} at {at}, before "
                    f"anybody was given {number}"
                )
                break


def only_the_owner_checkpoints(world: World) -> Iterator[str]:
    """Nobody writes a checkpoint who is not the owner, by the row and since the last to write."""
    last: dict[str, Any] = {}
    for write, before, after in _leases(world):
        if before is None or after is None:
            last.pop(write.key, None)
            continue
        if before.checkpoint != after.checkpoint:
            owner = before.actual_owner
            if write.by is None or world.worker_ids[write.by] != owner:
                yield f"at {write.at:.3f} {write.by} checkpointed {write.key}, which is {owner}'s"
            if last.get(write.key) is not write.by:
                yield (
                    f"at {write.at:.3f} {write.by} checkpointed {write.key} without having taken "
                    f"it from {last.get(write.key)}"
                )
        if before.counter != after.counter:
            last[write.key] = write.by


def nobody_begins_too_late(world: World) -> Iterator[str]:
    """Nobody gives records of a shard to a processor who has not shown life for a failover time.

    Unless its process has slept between looking and doing: the next write tells it then.
    """
    failover_time = world.options.failover_time
    writes: dict[tuple[str, str], list[float]] = {}
    for write, before, after in _leases(world):
        is_life = before is not None and after is not None and before.counter != after.counter
        if is_life and write.by is not None:
            writes.setdefault((write.by.name, write.key), []).append(write.at)
    for entry in world.journal.entries:
        if entry.what != "records" or (entry.process, entry.at) in world.resumed:
            continue
        shown = writes.get((entry.process, entry.shard), [])
        place = bisect_right(shown, entry.at)
        if not place or entry.at - shown[place - 1] > failover_time:
            since = shown[place - 1] if place else None
            yield (
                f"at {entry.at:.3f} {entry.process} was given records of {entry.shard}, whose "
                f"lease it had last written at {since}"
            )


def nothing_is_left_to_clean_up(world: World) -> Iterator[str]:
    """A finished lease goes soon after all of its children have begun, the oldest ones first."""
    patience = 4 * world.options.cleanup_interval + 2 * world.options.failover_time
    began: dict[str, float] = {}
    deleted: dict[str, float] = {}
    for write, _, after in _leases(world):
        if after is None:
            deleted[write.key] = write.at
        elif after.checkpoint.is_shard_end or not after.checkpoint.is_sentinel:
            began.setdefault(write.key, write.at)
    for shard in world.stream.shards:
        lease = _lease(world.table.rows.get(shard.id))
        if lease is None or not lease.is_finished:
            continue
        if any(parent in world.table.rows for parent in shard.parents):
            continue
        since = [began.get(child.id, float("inf")) for child in shard.children]
        since += [deleted.get(parent, 0.0) for parent in shard.parents]
        if max(since, default=float("inf")) + patience < world.leaving_at:
            yield f"{shard.id} is finished, and nobody needs its lease since {max(since):.3f}"


def finished_leases_have_children(world: World) -> Iterator[str]:
    """When a lease is finished, there are leases for all shards that follow, or there were."""
    children = {shard.id: [child.id for child in shard.children] for shard in world.stream.shards}
    seen: set[str] = set()
    for write, before, after in _leases(world):
        if before is None:
            seen.add(write.key)
        if after is None or not after.is_finished or (before is not None and before.is_finished):
            continue
        missing = [child for child in children.get(write.key, []) if child not in seen]
        if missing:
            yield f"at {write.at:.3f} {write.key} was finished without leases for {missing}"


def calls_stay_within_budgets(world: World) -> Iterator[str]:
    """What a worker costs is bounded, whatever goes wrong: looks at the table, and at shards."""
    options = world.options
    for process in world.worker_ids:
        lifetime = world.ended_at - world.started_at[process]
        # A look as soon as a third of the interval is over, each with up to two tries a second.
        scans = 10 + 4 * lifetime / options.taker_interval
        if world.calls.get((process.name, "Scan"), 0) > scans:
            yield f"{process} scanned {world.calls[process.name, 'Scan']} times in {lifetime} s"
        lists = 20 + lifetime * (1 / options.audit_interval + 1 / options.cleanup_interval) * 4
        if world.calls.get((process.name, "ListShards"), 0) > lists + 10 * len(world.stream.shards):
            count = world.calls[process.name, "ListShards"]
            yield f"{process} listed shards {count} times in {lifetime} s"
    if not any(write for write in world.kinesis.calls if write.error):
        return
    # The limit of consumers is one that others exhaust.
    for call in world.kinesis.calls:
        is_too_fast = call.operation != "RegisterStreamConsumer"
        if call.error == "LimitExceededException" and is_too_fast:
            yield f"{call.operation} exceeded the account's limit at {call.time_ms}"


INVARIANTS: tuple[Invariant, ...] = (
    no_thread_ends_by_an_error,
    calls_never_overlap,
    each_reader_goes_on_where_it_is_told,
    parents_come_first,
    checkpoints_never_go_back,
    checkpoints_are_asked_for,
    only_the_owner_checkpoints,
    nobody_begins_too_late,
    finished_leases_have_children,
    nothing_is_left_to_clean_up,
    everything_is_processed,
    every_shard_is_read,
    workers_leave,
    calls_stay_within_budgets,
    *FAN_OUT,
)


def check(world: World) -> list[str]:
    """All that is wrong with a world, by the invariants' names."""
    return [f"{each.__name__}: {text}" for each in INVARIANTS for text in each(world)]


def _leases(world: World) -> Iterator[tuple[Write, Lease | None, Lease | None]]:
    for write in world.table.writes:
        yield write, _lease(write.before), _lease(write.after)


def _lease(row: Mapping[str, Any] | None) -> Lease | None:
    return None if row is None else decode_lease(row)
