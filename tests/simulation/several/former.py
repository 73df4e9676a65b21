"""Invariants of streams that have left the application: who reads them, and their leases."""

from __future__ import annotations

from collections.abc import Iterator

from sparkinesis.lease.lease import decode_lease
from tests.simulation.history import Trouble
from tests.simulation.several.parts import ANSWERED, is_former
from tests.simulation.several.world import Life, SeveralWorld

_REACTION = 5.0
"""Seconds within which a worker stops to give records of a stream that it has left."""
_TROUBLE = 70.0
"""Seconds for which a call may wait that somebody waits for."""


def out_since(world: SeveralWorld, process: str, number: int, at: float) -> float | None:
    """The time since which a process had been told not to read a stream; None: it was to."""
    since: float | None = world.fleet.started_of(process)
    for when, numbers in world.fleet.answers.get(process, ()):
        if when > at:
            break
        if number in numbers:
            since = None
        elif since is None:
            since = when
    return since


def former_streams_are_left(world: SeveralWorld) -> Iterator[str]:
    """A worker gives no more records of a stream that the tracker does not name any more.

    But for the call at hand, and while calls fail that it waits for.
    """
    troubles = [(at, e.seconds) for at, e in world.history.events if isinstance(e, Trouble)]
    resumed: dict[str, list[float]] = {}
    for process, at in world.fleet.resumed:
        resumed.setdefault(process, []).append(at)
    for entry in world.journal.entries:
        life = world.life_of(entry.shard)
        if entry.what != "records" or life is None:
            continue
        since = out_since(world, entry.process, life.number, entry.at)
        if since is None or entry.at - since <= _REACTION:
            continue
        if any(since < at <= entry.at + 1.0 for at in resumed.get(entry.process, ())):
            continue
        if any(at <= entry.at and since <= at + lasts + _TROUBLE for at, lasts in troubles):
            continue
        yield f"at {entry.at:.3f} {entry.process} gave records of {entry.shard}, left at {since}"


def former_leases_are_deleted_by_the_rules(world: SeveralWorld) -> Iterator[str]:
    """`FormerStreams` allows each deletion of a lease of a stream that has left.

    The stream has been out for ``delete_after`` by all that the worker was told, nobody has read it
    for that time, and ``only`` names it. What stays, stays.
    """
    former = world.history.former
    for write in world.table.writes:
        life = world.life_of(write.key)
        if life is None or not is_former(world, life, write):
            continue
        assert write.by is not None
        lease = None if write.before is None else decode_lease(write.before)
        if life.ended_at is not None and lease is not None and lease.is_finished:
            continue  # cleaned up by a listing of the stream that was made anew
        told = f"at {write.at:.3f} {write.by} deleted {write.key}"
        if former.delete_after is None:
            yield f"{told}, which was to stay"
            continue
        if former.only is not None and life.number not in former.only:
            yield f"{told}, of a stream that may not go"
        known = out_since(world, write.by.name, life.number, write.at - ANSWERED)
        outs = [known, life.ended_at]
        since = min((out for out in outs if out is not None), default=write.at)
        slept = sum(
            seconds
            for woke, seconds in world.fleet.suspended.get(write.by.name, ())
            if since < woke <= write.at
        )
        if write.at - since + slept < former.delete_after:
            yield f"{told}, of a stream that was left at {since:.3f}"
        if (reader := _reader(world, life, write.at)) is not None:
            yield f"{told}, while {reader} was reading the stream"


def _reader(world: SeveralWorld, life: Life, deleted_at: float) -> str | None:
    """A worker that was reading a stream for long, shortly before leases of it were deleted.

    One whose lease had expired meanwhile is to be seen only if it goes on reading.
    """
    options, former = world.options, world.history.former
    notice = 2 * options.taker_interval + options.failover_time
    until = deleted_at - (former.delete_after or 0.0)
    spans: dict[tuple[str, str], tuple[float, float]] = {}
    for write in world.table.writes:
        if write.at > deleted_at or not write.key.startswith(life.prefix) or write.by is None:
            continue
        lease = None if write.after is None else decode_lease(write.after)
        owner = world.fleet.worker_ids.get(write.by)
        if lease is None or lease.is_finished or owner is None or lease.actual_owner != owner:
            spans.pop((write.key, write.by.name), None) if lease is None else None
            continue
        before = None if write.before is None else decode_lease(write.before)
        since, last = spans.get((write.key, write.by.name), (write.at, write.at))
        has_slept = write.at - last > options.failover_time
        if before is None or before.actual_owner != owner or has_slept:
            since = write.at
        spans[write.key, write.by.name] = since, write.at
    for (_, process), (since, last) in spans.items():
        if last - since > notice and last > until + notice:
            return process
    return None
