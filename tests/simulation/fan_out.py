"""Invariants of subscriptions and of the consumer that all of them share.

Part of `invariants`: each yields its violations as text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.connection import Connection
from tests.simulation.fleet import APPLICATION
from tests.simulation.scheduler import Process
from tests.simulation.world import World

_RENEWED_AT = 240.0
"""Seconds before which an undisturbed subscription is not renewed."""
_HURRY = 25
"""SubscribeToShard calls that may exceed the long-term rate."""
_GRACE = 4.0
"""Seconds within which a worker reacts."""


def subscribe_calls_stay_within_limits(world: World) -> Iterator[str]:
    """A worker makes at most one SubscribeToShard call in five seconds for a shard, on average.

    More calls, one a second, are allowed for a short time: a worker that takes over a shard is
    refused until the subscription before it has ended.
    """
    calls: dict[tuple[str, str], list[float]] = defaultdict(list)
    for call in world.subscriptions.calls:
        calls[call.process.name, call.shard_id].append(call.at)
    for (process, shard_id), times in calls.items():
        asked = f"{process} called SubscribeToShard for {shard_id}"
        for first in range(len(times) - _HURRY):
            span = times[first + _HURRY] - times[first]
            if span < _HURRY:
                yield f"from {times[first]:.3f} on {asked} {_HURRY + 1} times in {span:.1f} s"
                break
        since = world.ended_at - times[0]
        if len(times) > _HURRY + since / 5.0:
            yield f"{asked} {len(times)} times in {since:.1f} s"


def subscriptions_are_kept(world: World) -> Iterator[str]:
    """A worker keeps an undisturbed subscription until its time of renewal.

    The exceptions: it jumps over records that are too old, its program pauses the shard, or it
    could not ask whether records are lost before the position at which it begins.
    """
    if world.options.skip_older_than is not None:
        return
    begun: dict[tuple[str, str], list[float]] = defaultdict(list)
    for entry in world.journal.entries:
        # A processor that moves its shard reads on elsewhere, once that is written.
        if entry.what in {"initialize", "resets", "reset", "DescribeStreamSummary meets"}:
            begun[entry.process, entry.shard].append(entry.at)
    for held in world.fleet.holds:
        # A subscription that is being made when a pause begins is there until the pause ends.
        begun[held.process, held.key or ""] += [held.since, held.until]
    for (process, shard_id), connections in _by_reader(world).items():
        # A pause that names no shard is one of all.
        acquired = sorted(begun[process, shard_id] + begun[process, ""])
        for one, next_ in pairwise(connections):
            is_over = one.ended is not None and one.closed is not None and one.ended <= one.closed
            if one.met is not None or is_over or next_.began - one.began >= _RENEWED_AT:
                continue
            if bisect_right(acquired, one.began) != bisect_right(acquired, next_.began):
                continue
            yield (
                f"at {next_.began:.3f} {process} subscribed to {shard_id}, and had done so at "
                f"{one.began:.3f}; that subscription was in order"
            )


def subscriptions_end_with_their_leases(world: World) -> Iterator[str]:
    """A worker that has lost a lease, or has ended, has no open subscription to its shard."""
    owned = _ownership(world)
    resumed: dict[str, list[float]] = defaultdict(list)
    for process, at in sorted(world.fleet.resumed):
        resumed[process].append(at)
    patience = world.options.failover_time + _GRACE
    for (process, shard_id), connections in _by_reader(world).items():
        spans = owned.get((process, shard_id), [])
        for one in connections:
            if one.closed is None:
                if not one.process.is_killed:
                    since = f"{one.began:.3f}"
                    yield f"{process} never closed its subscription of {since} to {shard_id}"
                continue
            until = [min(end, one.closed) for begin, end in spans if begin <= one.closed]
            had_it = max(until, default=one.began)
            woke = max((at for at in resumed[process] if at <= one.closed), default=0.0)
            if one.closed - max(had_it, woke) > patience:
                yield (
                    f"{process} closed its subscription to {shard_id} at {one.closed:.3f}, and had "
                    f"had the lease until {had_it:.3f}"
                )


def the_last_worker_deregisters(world: World) -> Iterator[str]:
    """The consumer goes when, and only when, that is asked for and the last worker leaves.

    Another process with the same worker id is no other worker to one that leaves: rows name ids.
    """
    owned = _ownership(world)
    ids = {process.name: worker_id for process, worker_id in world.fleet.worker_ids.items()}
    for at, process in world.deregistrations:
        if not world.options.fan_out.deregister:
            yield f"at {at:.3f} {process} deregistered the consumer without a reason"
        for (other, shard_id), spans in owned.items():
            is_other = ids[other] != ids[process]
            if is_other and any(begin + _GRACE < at < end for begin, end in spans):
                yield f"at {at:.3f} {process} deregistered the consumer, but {other} had {shard_id}"
    if world.options.fan_out.deregister and world.was_graceful():
        consumer = world.producer.stream.consumers.get(APPLICATION)
        if consumer is not None and consumer.gone_ms is None:
            yield "the consumer is still registered after the last worker has left"


def _by_reader(world: World) -> dict[tuple[str, str], list[Connection]]:
    """The connections in order, by process and shard."""
    found: dict[tuple[str, str], list[Connection]] = defaultdict(list)
    for connection in world.subscriptions.connections:
        if connection.opened is not None:
            found[connection.process.name, connection.shard_id].append(connection)
    return found


def _ownership(world: World) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """The times from which and until which a process owned a lease, by process and shard."""
    spans: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    owners: dict[str, tuple[Process, float]] = {}
    for write, _, lease in world.leases():
        owner = None if lease is None or lease.is_finished else lease.actual_owner
        before, since = owners.get(write.key, (None, 0.0))
        now = None
        for process in (write.by, before):
            if owner is None or process is None:
                continue  # an operator has no worker id, and owns nothing
            if world.fleet.worker_ids.get(process) == owner:
                now = process
                break
        if now is before:
            continue
        if before is not None:
            spans[before.name, write.key].append((since, write.at))
            del owners[write.key]
        if now is not None:
            owners[write.key] = now, write.at
    for key, (process, since) in owners.items():
        spans[process.name, key].append((since, float("inf")))
    return spans


FAN_OUT = (
    subscribe_calls_stay_within_limits,
    subscriptions_are_kept,
    subscriptions_end_with_their_leases,
    the_last_worker_deregisters,
)
