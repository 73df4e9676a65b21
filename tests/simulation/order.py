"""Invariants of order: a key's records in the order of puts, parents before children."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.journal import Entry
from tests.simulation.lease_rules import acquisitions
from tests.simulation.owed_records import beginning_ms
from tests.simulation.replay import jitter_ms, ms, slack_ms
from tests.simulation.world import World


def keys_keep_their_order(world: World) -> Iterator[str]:
    """A key's records are first given in the order of their puts, on whichever shards they are.

    Where nobody has moved a shard, or deleted a lease. And but for records that arrived before the
    application began: who began at LATEST itself, and has slept since, may still have them, which
    are passed over by all who begin at that instant later. Nor, with ``skip_older_than``, what was
    too old for others by the time that a reader which was suspended has woken up with it; nor what
    was too old for the shard's reader that was given the later record, and not for the next one:
    with 0 the bound is that worker's start.
    """
    if world.table_writers.operators or world.table_writers.deleted:
        return
    if not world.options.parents_first:
        return
    if any(entry.what == "resets" for entry in world.journal.entries):
        return
    given = _first_given(world)
    first_ms = beginning_ms(world) + jitter_ms(world)
    for key, datas in world.producer.keys.items():
        if key in world.producer.unordered:
            continue
        order = [data for data in datas if data in given and _arrival(world, data) >= first_ms]
        for earlier, later in pairwise(order):
            if given[earlier] > given[later]:
                if _was_too_old(world, earlier, given[later], given[earlier]):
                    continue
                yield f"{later} was given to a processor before {earlier}"
                break


def _first_given(world: World) -> dict[str, int]:
    """The number of the journal entry that first gave each record, by the record's data."""
    given: dict[str, int] = {}
    for number, entry in enumerate(world.journal.entries):
        if entry.what != "records":
            continue
        log = world.producer.logs[entry.shard]
        for place in entry.about:
            if place in log.index and not _slept_with(world, entry, log.put_at[log.index[place]]):
                given.setdefault(log.data[log.index[place]], number)
    return given


def _slept_with(world: World, entry: Entry, put_at: float) -> bool:
    if world.options.skip_older_than is None:
        return False
    suspended = world.fleet.suspended.get(entry.process, ())
    return any(put_at < woke <= entry.at for woke, _ in suspended)


def _was_too_old(world: World, data: str, later: int, at_last: int) -> bool:
    """True if a record was too old for its shard's reader at one entry, but not for another reader.

    Readers' bounds differ by the start of their workers, or by their estimates of the service's
    clock. `Replay` checks that it was not too old in the end.
    """
    skip, entries = world.options.skip_older_than, world.journal.entries
    before, after = entries[later], entries[at_last]
    if skip is None or before.shard != after.shard or before.reader == after.reader:
        return False
    if skip:
        bound_ms = ms(before.at) - round(skip * 1000)
    elif before.process == after.process:
        return False
    else:
        begun = (e.at for e in entries if (e.what, e.reader) == ("initialize", before.reader))
        bound_ms = ms(next(begun))
    return _arrival(world, data) < bound_ms + slack_ms(world)


def _arrival(world: World, data: str) -> int:
    shard, index = world.producer.where[data]
    return world.producer.logs[shard].arrivals[index]


def parents_come_first(world: World) -> Iterator[str]:
    """A shard is read only after its parents are finished in the table.

    The specification's `ChildrenAfterParent`.

    They were finished at some time since the lease was acquired: an operator may reset a parent
    after the check, and the shard's reader learns of it by its own lease, which is reset as well.
    Two workers that start at once, not at the start of all shards, may have seen two lists of open
    shards: each creates leases of its own, and the leases between the older and newer shards follow
    later. A reset to LATEST makes the leases of open shards first: a worker that ends a shard
    meanwhile makes those of its children, and the reset then finishes the closed ones of them.
    With ``parents_first=False``, nobody waits.
    """
    if not world.options.parents_first:
        return
    operators = world.table_writers.operators
    rows: dict[str, tuple[float, bool | None]] = {}
    changes = [
        (write.at, write.key, None if after is None else after.is_finished)
        for write, _, after in world.leases()
    ]
    acquired, moved = acquisitions(world), _unfinished(world)
    made = {
        write.key: (write.at, after.timestamp_ms is not None or write.by in operators)
        for write, before, after in world.leases()
        if before is None and after is not None
    }
    ids = {process.name: worker_id for process, worker_id in world.fleet.worker_ids.items()}
    done: set[str] = set()
    position = 0
    all_from_the_start = world.history.initial_position == "trim_horizon"
    for entry in world.journal.entries:
        if entry.what != "initialize":
            continue
        while position < len(changes) and changes[position][0] <= entry.at:
            at, key, is_finished = changes[position]
            rows[key] = (at, is_finished)
            if is_finished:
                done.add(key)
            position += 1
        for parent in world.producer.shards[entry.shard].parents:
            _, is_finished = rows.get(parent, (0.0, None))
            closed_ms = world.producer.shards[parent].closed_ms or 0
            # A retention period that was shorter for a while has removed the shard for ever.
            is_kept = closed_ms > world.producer.horizon_ms(ms(entry.at))
            is_missing = (
                parent not in done | world.table_writers.deleted
                and all_from_the_start
                and is_kept
                # Operators who reset to LATEST need no lease of a parent.
                and not operators
            )
            mine = acquired.get((ids[entry.process], entry.shard), ())
            since = max((at for at in mine if at <= entry.at), default=entry.at)
            late = moved.get(parent, [])
            if parent in made and made[entry.shard][1]:
                late = [*late, made[parent][0]]
            if any(since <= at <= entry.at for at in late):
                continue
            if is_finished is False or (is_finished is None and is_missing):
                yield (
                    f"at {entry.at:.3f} {entry.process} began to read {entry.shard} before "
                    f"{parent} was finished"
                )


def _unfinished(world: World) -> dict[str, list[float]]:
    """The times at which an operator reset a finished lease, by shard."""
    found: dict[str, list[float]] = {}
    for write, before, after in world.leases():
        was_finished = before is not None and before.is_finished
        is_finished = after is None or after.is_finished
        if write.by in world.table_writers.operators and was_finished and not is_finished:
            found.setdefault(write.key, []).append(write.at)
    return found
