"""Invariants of what an application costs: its calls, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.batching import BATCHES_AGAIN
from tests.simulation.journal import EPOCH_MS
from tests.simulation.world import World

_BATCH = 25
"""Renewals that one call holds at most."""
_AT_FAULT = {"denied", "error", "error_after", "expired", "statements"}
"""Faults of a batch for which leases are renewed one by one for a while."""
_MANY = 40
"""First calls of workers that start within five seconds, from which on they exceed a limit of 20 a
second: each worker describes each stream, and one more at the first end of a shard."""
_TRIES = 20
"""Calls that a worker may make in the few seconds in which it deregisters the consumer."""


def calls_stay_within_budgets(world: World) -> Iterator[str]:
    """The number of a worker's scans and listings is bounded, whatever fails."""
    options = world.options
    shards = world.producer.shards.values()
    streams = max(1, len(world.history.streams))
    # The end of a shard that was merged looks at the table, and again when a lease that it waits
    # for has come.
    looks = 3 * sum(any(len(child.parents) > 1 for child in shard.children) for shard in shards)
    pages = 1 + len(world.producer.shards) // world.history.list_page
    for process, started_at in world.fleet.started_at.items():
        lifetime = world.ended_at - started_at
        # A look as soon as a third of the interval is over, each with up to two tries a second.
        scans = 10 * streams + looks + 4 * lifetime / options.taker_interval
        if world.calls.get((process.name, "Scan"), 0) > scans:
            yield f"{process} scanned {world.calls[process.name, 'Scan']} times in {lifetime} s"
        lists = 20 + lifetime * (1 / options.audit_interval + 1 / options.cleanup_interval) * 4
        lists *= streams
        lists += 10 * len(world.producer.shards)
        if world.calls.get((process.name, "ListShards"), 0) > lists * pages:
            count = world.calls[process.name, "ListShards"]
            yield f"{process} listed shards {count} times in {lifetime} s"
        if world.calls.get((process.name, "DeregisterStreamConsumer"), 0) > _TRIES:
            count = world.calls[process.name, "DeregisterStreamConsumer"]
            yield f"{process} deregistered the consumer {count} times"
    for call in world.kinesis.calls:
        if call.error != "LimitExceededException":
            continue
        # A stream that has all the consumers that it may is told to who would register one more;
        # and of workers that leave at the same moment, each finds itself the last.
        is_excused = call.operation in {"RegisterStreamConsumer", "DeregisterStreamConsumer"}
        if call.operation == "DescribeStreamSummary":
            at = (call.time_ms - EPOCH_MS) / 1000
            begun = sum(at - 5.0 <= each <= at for each in world.fleet.started_at.values())
            is_excused = begun * (streams + 1) >= _MANY
        if not is_excused:
            yield f"{call.operation} exceeded the account's limit at {call.time_ms}"


def shards_are_not_read_too_fast(world: World) -> Iterator[str]:
    """A worker makes at most four of the five GetRecords calls a second, also while catching up."""
    failed = {entry.process for entry in world.journal.entries if entry.what == "worker failed"}
    for (process, shard), sent in world.kinesis_client.fetches.items():
        if process in failed:  # a worker that is made anew knows of no calls before
            continue
        for calls, seconds in ((5, 1.0), (41, 10.0)):
            for first, last in zip(sent, sent[calls:], strict=False):
                if last - first < seconds:
                    yield (
                        f"{process} sent more than {calls} GetRecords calls for {shard} within "
                        f"{seconds} s of {first:.3f}"
                    )
                    break


def leases_are_renewed_together(world: World) -> Iterator[str]:
    """A renewal takes a call for every 25 leases, three times in a failover time.

    Or a call for each: where the server cannot do it, for a while after a process was not permitted
    to renew them together or that has failed, and for a round where nobody has told yet.
    """
    options = world.options
    leases = 1 + len(world.producer.shards) // _BATCH
    others: dict[str, int] = {}
    for write, before, after in world.leases():
        if write.by is not None and (before is None or after is None or _is_more(before, after)):
            others[write.by.name] = others.get(write.by.name, 0) + 1
    for write in world.table.fleet_writes:
        if write.by is not None:
            others[write.by.name] = others.get(write.by.name, 0) + 1
    for process, started_at in world.fleet.started_at.items():
        name = process.name
        answered = sum(
            world.calls.get((name, operation), 0) - world.failed_calls.get((name, operation), 0)
            for operation in ("BatchExecuteStatement", "UpdateItem")
        )
        rounds = 3 + (world.ended_at - started_at) / options.renew_interval
        lifetime = world.ended_at - started_at
        rounds = 3 + lifetime / options.renew_interval
        alone = _seconds_without_batches(world, name, lifetime) / options.renew_interval
        most = rounds * leases + others.get(name, 0)
        if alone:
            most += (1 + alone) * _most_held(world, world.fleet.worker_ids[process])
        # What is refused because somebody else has just written is sent once more.
        if answered > 1.2 * most + 15:
            yield f"{process} wrote leases in {answered} calls, in {rounds:.0f} rounds"


def _seconds_without_batches(world: World, process: str, lifetime: float) -> float:
    if world.history.table_server in {"dynalite", "moto"}:
        return lifetime
    seconds, until = 0.0, 0.0
    for at, failed, kind in world.failed_batches:
        if failed == process:
            lasts = BATCHES_AGAIN if kind in _AT_FAULT else world.options.renew_interval
            ends = min(at + lasts, world.ended_at)
            seconds += max(0.0, ends - max(at, until))
            until = max(until, ends)
    return seconds


def _most_held(world: World, worker_id: str) -> int:
    """The largest number of leases that a worker held at once."""
    held: set[str] = set()
    most = 0
    for write, _, after in world.leases():
        if after is not None and after.actual_owner == worker_id:
            held.add(write.key)
            most = max(most, len(held))
        else:
            held.discard(write.key)
    return most


def _is_more(before: Lease, after: Lease) -> bool:
    """True if a write does more than renew the lease."""
    return replace(after, counter=0, throughput_kbps=None) != replace(
        before, counter=0, throughput_kbps=None
    )
