"""Invariants of the lease table: who may write what, and which rows there are."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator

from sparkinesis.lease.lease import Lease
from sparkinesis.local.model.shard_log import Shard
from tests.simulation.history import Foreign
from tests.simulation.owed_records import beginning_ms
from tests.simulation.replay import ms, slack_ms
from tests.simulation.table_writers import NOTE
from tests.simulation.world import World

_AT_ONCE = 0.1
"""Seconds between two leases of workers that begin at the same time."""
_NOT_BEGUN = {"TRIM_HORIZON", "AT_TIMESTAMP"}
"""Checkpoints that the KCL writes for a shard that nobody has begun to process."""


def signs_of_life(world: World) -> dict[tuple[str, str], list[float]]:
    """The times of each process's writes that renew its lease, by process and shard."""
    writes: dict[tuple[str, str], list[float]] = {}
    for write, before, after in world.leases():
        is_life = before is not None and after is not None and before.counter != after.counter
        if is_life and write.by is not None:
            writes.setdefault((write.by.name, write.key), []).append(write.at)
    return writes


def acquisitions(world: World) -> dict[tuple[str, str], list[float]]:
    """The times at which a worker became a lease's owner, by worker id and shard."""
    found: dict[tuple[str, str], list[float]] = {}
    for write, before, after in world.leases():
        owner = None if after is None else after.actual_owner
        if owner is not None and (before is None or before.actual_owner != owner):
            found.setdefault((owner, write.key), []).append(write.at)
    return found


def asleep(world: World, process: str, since: float, until: float) -> float:
    """Seconds that its machine was suspended, which ended in between."""
    suspended = world.fleet.suspended.get(process, ())
    return sum(seconds for at, seconds in suspended if since < at <= until)


def expired_leases_are_not_processed(world: World) -> Iterator[str]:
    """A worker that has not renewed a lease within the failover time gives no records of its shard.

    It is what the specification's `OneHolder` rests on, as leases are taken only after that time.
    Measured by the process's own clock, which does not count suspensions of its machine. A process
    that slept between its check and the call is excused: its next write is refused.
    """
    failover_time = world.options.failover_time
    writes = signs_of_life(world)
    for entry in world.journal.entries:
        if entry.what != "records" or (entry.process, entry.at) in world.fleet.resumed:
            continue
        shown = writes.get((entry.process, entry.shard), [])
        place = bisect_right(shown, entry.at)
        since = shown[place - 1] if place else None
        slept = 0.0 if since is None else asleep(world, entry.process, since, entry.at)
        if since is None or entry.at - since - slept > failover_time:
            yield (
                f"at {entry.at:.3f} {entry.process} was given records of {entry.shard}, whose "
                f"lease it had last written at {since}"
            )


def leases_are_lost_for_a_reason(world: World) -> Iterator[str]:
    """The reason that a worker logs for losing a lease matches what has happened to the row.

    An ambiguous answer is no reason: a lease that is given up without one is read again from its
    last checkpoint, although nobody asked its worker to release it.
    """
    writes: dict[str, list[tuple[float, str | None, Lease | None]]] = {}
    may_lead = world.history.has_leader
    for write, before, after in world.leases():
        # Whoever makes a lease anew that was deleted makes it nobody's.
        by = None if write.by is None or before is None else write.by.name
        writes.setdefault(write.key, []).append((write.at, by, after))
    ids = {process.name: worker_id for process, worker_id in world.fleet.worker_ids.items()}
    for at, process, key, why in world.endings:
        happened = writes.get(key, ())
        others = [(by, row) for when, by, row in happened if when <= at and by != process]
        if "another process writes to it" in why:
            is_so = any(ids.get(by or "") == ids[process] for by, _ in others)
        elif "was deleted" in why:
            # Its own cleanup may have deleted it: an operator moved the application past the shard.
            is_so = any(row is None for when, _, row in happened if when <= at)
        elif "released or reset by somebody else" in why:
            is_so = any(row is not None and row.actual_owner is None for _, row in others)
        elif taken := re.fullmatch(r"worker (\S+) has taken it", why):
            # A leader gives away its own lease, too, once a handoff of it is late.
            rows = [row for when, by, row in happened if when <= at and (may_lead or by != process)]
            is_so = any(row is not None and row.owner == taken[1] for row in rows)
        elif "assigned to this worker again" in why:
            is_so = any(row is not None and row.owner == ids[process] for _, row in others)
        else:  # it says what the worker itself did, or did not
            continue
        if not is_so:
            yield f"at {at:.3f} {process} lost {key}, as if {why}"


def only_a_twin_ends_a_worker(world: World) -> Iterator[str]:
    """A worker that ends because of its worker id is not the only process that has it.

    The other one has written to a lease since this one started, be it by a late request.
    """
    ids, started_at = world.fleet.worker_ids, world.fleet.started_at
    for at, process in world.fleet.duplicates:
        if not any(
            write.by is not process
            and started_at[process] <= write.at <= at
            and ids.get(write.by) == ids[process]
            for write in world.table.writes
            if write.by is not None
        ):
            yield f"at {at:.3f} {process.name} ended, as if another worker had its worker id"


def leases_begin_where_they_should(world: World) -> Iterator[str]:
    """A lease begins at the initial position, which is fixed once, or at the start of its shard."""
    position = world.history.initial_position
    first_at = next(iter(world.fleet.started_at.values()), 0.0)
    instants: set[int | None] = set()
    began_at: float | None = None
    anew: set[tuple[str, int | None]] = set()
    rows: set[str] = set()
    workers_begin = True
    for write, before, after in world.leases():
        # A worker may have found an empty table a moment before an operator filled it.
        is_first, is_only = not rows or workers_begin, not rows
        rows.add(write.key)
        if after is None:
            rows.discard(write.key)
            continue
        if write.by in world.table_writers.operators:
            # The lease of a child is at its beginning, and has the instant of the reset as well.
            instants.add(after.began_ms)
        if before is not None or write.by in world.table_writers.operators:
            continue
        workers_begin = False
        shard = world.producer.shards[write.key]
        yield from _wrong_lineage(write.key, after, shard)
        name, instant_ms = after.checkpoint.sequence_number, after.timestamp_ms
        if name == "TRIM_HORIZON" and (position == "trim_horizon" or shard.parents):
            continue
        if is_only and world.may_begin_anew(name, instant_ms, write.at):
            anew |= {(name, instant_ms), ("LATEST", instant_ms)}
        if (name, instant_ms) in anew:
            continue
        if position == "latest":
            begins = name == "LATEST" and instant_ms is not None
            slack = slack_ms(world)
            began_at = write.at if began_at is None else began_at
            # Of workers that begin at once, each may find an empty table, and list other shards
            # than the others if the stream is resharded just then.
            is_first = is_first or write.at - began_at < _AT_ONCE
            if begins and instant_ms is not None and is_first:
                begins = ms(first_at) - slack <= instant_ms <= ms(write.at) + slack
                instants.add(instant_ms)
            begins = begins and instant_ms in instants
        else:
            # Once it is in a lease, the instant of LATEST is that of the leases that follow.
            names = {"AT_TIMESTAMP", "LATEST"} if world.means_latest else {"AT_TIMESTAMP"}
            begins = name in names and instant_ms == beginning_ms(world)
        if not begins:
            yield f"at {write.at:.3f} the lease {write.key} was created at {name}, {instant_ms}"


def _wrong_lineage(key: str, lease: Lease, shard: Shard) -> Iterator[str]:
    if set(lease.parent_ids) != set(shard.parents):
        yield f"the lease {key} was created with the parents {lease.parent_ids}"
    if lease.hash_range != (shard.hash_start, shard.hash_end):
        yield f"the lease {key} was created with the hash keys {lease.hash_range}"


def leases_are_deleted_in_time(world: World) -> Iterator[str]:
    """A finished lease is deleted only after all its children have begun, and after its parents.

    Unless the shard has expired. Other leases do not go at all. An operator may make the lease of
    a parent again while leases are deleted, one after the other, by a look from before; that of
    the shard is made again next then.

    A worker does not delete the last lease of an application either: the next audit would begin a
    new application, which knows of no loss, and skips with LATEST what nobody has read.
    """
    rows: set[str] = set()
    made_again: dict[str, float] = {}
    begun: set[str] = set()
    for write, before, after in world.leases():
        if after is not None:
            rows.add(write.key)
            if before is None and write.by in world.table_writers.operators:
                made_again[write.key] = write.at
            if after.is_finished or after.checkpoint.sequence_number not in _NOT_BEGUN:
                begun.add(write.key)
            else:
                begun.discard(write.key)
            continue
        rows.discard(write.key)
        if write.by is None:
            continue
        if not rows and write.by not in world.table_writers.operators:
            yield f"at {write.at:.3f} {write.by} deleted {write.key}, the last lease of all"
        if before is None or not before.is_finished:
            yield f"at {write.at:.3f} {write.by} deleted {write.key}, which was not finished"
        shard = world.producer.shards[write.key]
        if (shard.closed_ms or 0) < world.producer.horizon_ms(ms(write.at)):
            continue
        unread = [child.id for child in shard.children if child.id not in begun]
        since = write.at - world.options.cleanup_interval
        parents = {p for p in shard.parents if p in rows and made_again.get(p, -math.inf) <= since}
        if unread or parents:
            yield f"at {write.at:.3f} {write.by} deleted {write.key} before {unread} had begun"


def nothing_is_left_to_clean_up(world: World) -> Iterator[str]:
    """A finished lease goes soon after all of its children have begun, the oldest ones first.

    Or after its shard has expired, with all that is known of it. A child that an operator or a
    record processor moves, or whose lease a hand deletes, has to begin once more. None goes while a
    lease is missing, such as one that a hand has deleted: the audit that makes it needs the others.
    """
    patience = 4 * world.options.cleanup_interval + 2 * world.options.failover_time
    began = _begun_since(world)
    deleted: dict[str, float] = {}
    finished: dict[str, float] = {}
    complete = 0.0
    rows: set[str] = set()
    for write, before, after in world.leases():
        by_audit = rows.isdisjoint(world.producer.shards[write.key].parents)
        if before is None and (write.key in deleted or by_audit):
            complete = write.at
        if after is None:
            rows.discard(write.key)
            deleted[write.key] = write.at
            continue
        rows.add(write.key)
        if after.is_finished and not (before is not None and before.is_finished):
            finished[write.key] = write.at
    # Somebody must have been there to do it.
    lately = max(world.fleet.started_at.values(), default=0.0)
    listed = {shard.id for shard in world.producer.stream.shards}
    for key in world.table.lease_rows:
        lease = world.lease_of(key)
        shard = world.producer.shards[key]
        if lease is None or not lease.is_finished:
            continue
        if any(parent in world.table.rows for parent in shard.parents):
            continue
        if key not in listed and any(
            child.id in listed and child.id not in world.table.rows for child in shard.children
        ):
            continue  # it says where reading goes on
        since = [lately, complete, finished.get(key, 0.0)]
        since += [deleted.get(parent, 0.0) for parent in shard.parents]
        if key in listed:
            since += [began.get(child.id, float("inf")) for child in shard.children]
        else:
            retention = world.producer.stream.retention.hours * 3600
            since.append(((shard.closed_ms or 0) - ms(0.0)) / 1000 + retention)
        if max(since) + patience < world.leaving_at:
            yield f"{key} is finished, and its lease is not needed since {max(since):.3f}"


def _begun_since(world: World) -> dict[str, float]:
    """The time since which a lease's shard has been begun, in the end or when it was deleted."""
    began: dict[str, float] = {}
    for write, _, after in world.leases():
        if after is not None and after.checkpoint.sequence_number not in _NOT_BEGUN:
            began.setdefault(write.key, write.at)
        elif after is not None or write.by is None:
            began.pop(write.key, None)
    return began


def finished_leases_have_children(world: World) -> Iterator[str]:
    """A finished lease has, or had, leases for all child shards.

    Not of a shard that has expired, whose children nobody tells.
    """
    seen: set[str] = set()
    for write, before, after in world.leases():
        if before is None:
            seen.add(write.key)
        if after is None or not after.is_finished or (before is not None and before.is_finished):
            continue
        shard = world.producer.shards[write.key]
        has_expired = (shard.closed_ms or 0) < world.producer.horizon_ms(ms(write.at))
        if has_expired or write.by in world.table_writers.operators:
            continue
        missing = [child.id for child in shard.children if child.id not in seen]
        if missing:
            yield f"at {write.at:.3f} {write.key} was finished without leases for {missing}"


def foreign_attributes_stay(world: World) -> Iterator[str]:
    if not any(isinstance(event, Foreign) for _, event in world.history.events):
        return
    noted: set[str] = set()
    for write in world.table.writes:
        if write.after is None:
            noted.discard(write.key)
        elif NOTE in write.after:
            noted.add(write.key)
        elif write.key in noted:
            yield f"at {write.at:.3f} {write.by} removed a foreign attribute of {write.key}"
            return
