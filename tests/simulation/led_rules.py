"""Invariants of fleets with a leader: who assigns leases, who may take any, and how soon."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from sparkinesis.lease.assignment import coordinator_state
from sparkinesis.lease.assignment.coordinator_state import (
    LOCK_KEY,
    LeaderLock,
    Sharing,
    decode_lock,
    decode_version,
    sharing_of,
)
from sparkinesis.lease.assignment.moves import REST
from sparkinesis.lease.assignment.worker_stats import decode_stats
from sparkinesis.lease.lease import Lease
from sparkinesis.local.lease_tables import Item
from tests.simulation import history as h
from tests.simulation.dynamodb import Write
from tests.simulation.lease_rules import asleep, signs_of_life
from tests.simulation.replay import ms
from tests.simulation.scheduler import Process
from tests.simulation.world import World

_A_MOMENT = 0.001
_STALE = 3.0
"""Seconds by which the newest row that a worker has seen may be older than the table's."""
_IN_FLIGHT = 30.0
"""Seconds after which no write goes by what its worker knew before."""
_REPORTS = 60.0
"""Seconds for which the last report of a worker counts: a leader may give it leases until then."""


@dataclass
class Reign:
    """A time in which one process had the leader's lock."""

    by: Process
    lock: LeaderLock
    beats: list[float]
    """When the acquisition and each heartbeat had arrived."""
    sent: list[float]
    until: float = math.inf
    """When the lock was released, or taken by another process."""
    released_at: float = math.inf
    """When the release was sent."""

    @property
    def seconds(self) -> float:
        """The seconds for which the lock holds after a heartbeat."""
        return self.lock.duration_ms / 1000

    def is_in_force(self, at: float) -> bool:
        """True if the process may believe at that time that it leads."""
        place = bisect_right(self.sent, at)
        return bool(place) and at <= self.sent[place - 1] + self.seconds and at < self.released_at


@dataclass
class Leadership:
    """Who led a world, and when."""

    world: World
    reigns: list[Reign] = field(default_factory=list)
    early: list[tuple[Write, Reign]] = field(default_factory=list)
    """Acquisitions of a lock that had not expired, and whose it was."""
    led: list[tuple[float, bool]] = field(default_factory=list)
    """From when on leases are assigned by a leader, or no more."""
    _told: defaultdict[Process, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When each process has told its load."""

    def __post_init__(self) -> None:
        for write in self.world.table.fleet_writes:
            if write.by is not None and write.key == self.world.fleet.worker_ids.get(write.by):
                self._told[write.by].append(write.at)
            if write.key == LOCK_KEY:
                self._note_lock(write)
            elif write.key == coordinator_state.VERSION_KEY:
                row = None if write.after is None else decode_version(write.after)
                self.led.append((write.at, sharing_of(row) is Sharing.ASSIGNED))

    def _note_lock(self, write: Write) -> None:
        lock = None if write.after is None else decode_lock(write.after)
        reign = self.reigns[-1] if self.reigns else None
        if lock is None:
            if reign is not None:
                reign.until, reign.released_at = write.at, write.sent
            return
        assert write.by is not None
        if reign is not None and reign.by is write.by and write.before is not None:
            reign.beats.append(write.at)
            reign.sent.append(write.sent)
            return
        if reign is not None and write.before is not None:
            reign.until = write.at
            if write.at - reign.beats[-1] < reign.seconds - _A_MOMENT:
                self.early.append((write, reign))
        self.reigns.append(Reign(write.by, lock, [write.at], [write.sent]))

    def has_leader(self, since: float, until: float) -> bool:
        """True if the mode was that of a leader for all of these seconds."""
        before = [has_leader for at, has_leader in self.led if at <= since]
        return bool(before and before[-1]) and all(
            has_leader for at, has_leader in self.led if since < at <= until
        )

    def live_leader(self, since: float, until: float) -> Reign | None:
        """The reign of a leader that proved all the time that it is alive, if there is one."""
        failover_time = self.world.options.failover_time
        for reign in self.reigns:
            if reign.beats[0] > since or reign.until < until:
                continue
            if _longest_gap(reign.beats, since, until) + _STALE >= reign.seconds:
                continue
            told = self._told.get(reign.by, ())
            if told and _longest_gap(told, since, until) + _STALE >= _REPORTS:
                continue
            if reign.by in self.world.java.processes:
                return reign
            renewed = self._renewals(reign.by, since - failover_time)
            if not renewed or _longest_gap(renewed, since, until) + _STALE < failover_time:
                return reign
        return None

    def _renewals(self, process: Process, since: float) -> list[float]:
        """When a process has written to leases, which show that it is alive. Empty: it has none."""
        own = [
            at
            for (name, _), shown in signs_of_life(self.world).items()
            if name == process.name
            for at in shown
        ]
        return sorted(at for at in own if at >= since)


def _longest_gap(times: list[float], since: float, until: float) -> float:
    """The longest time from one of sorted times to the next, of those that touch a span."""
    first, last = max(0, bisect_right(times, since) - 1), bisect_left(times, until)
    seen = [*times[first:last], until]
    return max((after - before for before, after in pairwise(seen)), default=math.inf)


def _id_of(world: World, process: Process | None) -> str | None:
    if process is None:
        return None
    return world.fleet.worker_ids.get(process) or world.java.processes.get(process)


def _changes(world: World) -> Iterator[tuple[Write, Process, Lease, Lease]]:
    """Yields the writes by which a process gives a lease to a worker that did not have it.

    That worker may be its own. A withdrawn request gives the lease to none.
    """
    for write, before, after in world.leases():
        if write.by is None or before is None or after is None:
            continue
        is_news = after.owner not in {None, before.owner, before.checkpoint_owner}
        if is_news and _id_of(world, write.by) is not None:
            yield write, write.by, before, after


def the_lock_is_respected(world: World) -> Iterator[str]:
    """Nobody takes the leader's lock before it has expired, or was released."""
    for write, reign in Leadership(world).early:
        yield (
            f"at {write.at:.3f} {write.by} took the lock of {reign.by}, which had proved at "
            f"{reign.beats[-1]:.3f} that it is alive"
        )


def leaders_assign_one_at_a_time(world: World) -> Iterator[str]:
    """Two workers never assign leases by locks that are in force at the same time, by their clocks.

    A process whose machine was suspended is excused: its clock stood still.
    """
    reigns = Leadership(world).reigns
    assigned: list[tuple[Write, Reign]] = []
    for write, by, _, _ in _changes(world):
        for reign in reigns:
            if reign.by is by and reign.is_in_force(write.sent):
                assigned.append((write, reign))
                break
    for (first, of_first), (second, of_second) in pairwise(assigned):
        if of_first.by is of_second.by:
            continue
        if any(world.fleet.suspended.get(one.by.name) for one in (of_first, of_second)):
            continue
        if of_first.is_in_force(second.sent) or of_second.is_in_force(first.sent):
            yield (
                f"at {first.at:.3f} {of_first.by} assigned {first.key}, at {second.at:.3f} "
                f"{of_second.by} assigned {second.key}, and both led"
            )


def only_the_leader_assigns(world: World) -> Iterator[str]:
    """A worker gives leases to others only while it has the lock, or has had it a moment ago."""
    reigns = Leadership(world).reigns
    for write, by, _, after in _changes(world):
        if after.owner == _id_of(world, by):
            continue
        slept = asleep(world, by.name, -math.inf, write.at)
        if not any(
            reign.by is by
            and any(
                0.0 <= write.sent - at <= reign.seconds + slept + _IN_FLIGHT for at in reign.sent
            )
            for reign in reigns
        ):
            yield f"at {write.at:.3f} {by} gave {write.key} to {after.owner}, and did not lead"


def nobody_takes_beside_a_live_leader(world: World) -> Iterator[str]:
    """While a live leader leads, no other worker takes a lease, or requests one, by itself.

    The exception: a worker whose clock was put forward, where the server tells no time, takes the
    row of the leader's load for an old one.
    """
    leadership = Leadership(world)
    put_forward = [
        (at, f"worker {event.worker},")
        for at, event in world.history.events
        if isinstance(event, h.ClockJump) and event.seconds > 0
    ]
    for write, by, _, after in _changes(world):
        if by in world.java.processes or after.owner != _id_of(world, by):
            continue
        since = write.at - _IN_FLIGHT
        woke = [at for name, at in world.fleet.resumed if name == by.name]
        if any(since <= at <= write.at for at in woke):
            continue
        if any(at <= write.at and str(by.name).startswith(who) for at, who in put_forward):
            continue
        if not leadership.has_leader(since - _IN_FLIGHT, write.at):
            continue
        reign = leadership.live_leader(since, write.at)
        if reign is not None and reign.by is not by and _id_of(world, reign.by) != after.owner:
            yield f"at {write.at:.3f} {by} took or asked for {write.key}, although {reign.by} led"


def rows_of_the_fleet_are_written_by_their_owners(world: World) -> Iterator[str]:
    """A worker writes its own stats, stands for leader in its own name, and sets no mode twice."""
    for write in world.table.fleet_writes:
        if write.by is None:
            continue
        owner = _id_of(world, write.by)
        if write.key == LOCK_KEY:
            is_right = write.after is None or _owner_of(write.after) == owner
            if write.after is None and write.before is not None:
                is_right = _owner_of(write.before) == owner
        elif write.key == coordinator_state.VERSION_KEY:
            is_right = write.before is None
        else:
            is_right = write.key == owner or _is_stale(world, write)
        if not is_right:
            yield f"at {write.at:.3f} {write.by} wrote the row {write.key}"


def _is_stale(world: World, write: Write) -> bool:
    """True if a write deletes the stats of a worker that has ended a day ago."""
    stats = None if write.before is None or write.after is not None else decode_stats(write.before)
    return stats is not None and stats.is_stale(ms(write.at) / 1000 + _STALE)


def _owner_of(item: Item) -> str | None:
    lock = decode_lock(item)
    return None if lock is None else lock.owner


def leases_stay_where_they_have_moved(world: World) -> Iterator[str]:
    """No leader moves a lease from a live worker twice within six failover times.

    Unless its owner has left meanwhile. A leader that has started since, or was suspended, does not
    know of the first move; nor does any if the fleet was without leaders between the two.
    """
    if not world.history.has_leader:
        return
    rest = REST * world.options.failover_time
    leadership = Leadership(world)
    moved: dict[str, tuple[float, Process]] = {}
    for write, before, after in world.leases():
        if after is None or after.owner is None:
            moved.pop(write.key, None)
            continue
        by = write.by
        if before is None or by is None or _id_of(world, by) is None:
            continue
        is_request = before.checkpoint_owner is None and after.checkpoint_owner == before.owner
        if not is_request or before.owner is None or after.owner == before.owner:
            continue
        known = moved.get(write.key)
        is_by_ours = by in world.fleet.started_at
        if is_by_ours and known is not None and _has_led(world, by, write.sent):
            at, _ = known
            knows = _has_scanned_since(world, by, at) and leadership.has_leader(at, write.at)
            if knows and write.sent - at < rest - _A_MOMENT:
                yield (
                    f"at {write.at:.3f} {by} moved {write.key} to {after.owner}, which had "
                    f"moved at {at:.3f}"
                )
        if by in world.java.processes or _has_led(world, by, write.sent):
            moved[write.key] = (write.at, by)


def _has_scanned_since(world: World, process: Process, at: float) -> bool:
    """True if a worker was in the fleet at that time already, and has not begun anew since."""
    begun = [world.fleet.started_at[process]]
    begun += [
        entry.at
        for entry in world.journal.entries
        if entry.what == "worker failed" and entry.process == process.name
    ]
    is_late = max(begun) + world.options.failover_time >= at
    return not is_late and not world.fleet.suspended.get(process.name)


def _has_led(world: World, process: Process, at: float) -> bool:
    return any(reign.by is process and reign.is_in_force(at) for reign in Leadership(world).reigns)


def leases_find_owners_in_time(world: World) -> Iterator[str]:
    """A lease without a live owner gets one within a failover time and two scans of the table.

    One failover time more for each worker that has died or left a minute before, which the leader
    may still believe to be alive. Only while nothing disturbs the workers that live.
    """
    options = world.options
    if not world.history.has_leader:
        return
    leadership = Leadership(world)
    if world.history.on_error == "stop" or options.max_leases < len(world.producer.shards):
        return
    for key, since, until in _vacancies(world):
        others = sum(
            since - _REPORTS - options.failover_time <= at < until
            for at in world.fleet.ended_at.values()
        )
        most = (1 + others) * options.failover_time + 2 * options.renew_interval + _STALE
        if until - since <= most or not leadership.has_leader(since - most, until):
            continue
        settled = since - 2 * options.failover_time
        if _is_calm(world, since, since + most) and world.fleet.has_worker(settled, since + most):
            yield f"{key} had no live owner from {since:.3f} to {until:.3f}"


def _vacancies(world: World) -> Iterator[tuple[str, float, float]]:
    """Yields the times in which a lease of a shard that is to be read has no live owner."""
    reader: dict[str, Process | None] = {}
    vacant: dict[str, float] = {}
    for write, _, after in world.leases():
        holder = reader.get(write.key)
        if holder is not None and world.fleet.ended_at.get(holder, math.inf) < write.at:
            vacant.setdefault(write.key, world.fleet.ended_at[holder])
            reader[write.key] = None
        if after is None or after.is_finished:
            reader.pop(write.key, None)
            vacant.pop(write.key, None)
            continue
        owner = after.actual_owner
        if owner is not None and owner == _id_of(world, write.by):
            reader[write.key] = write.by
            if (since := vacant.pop(write.key, None)) is not None:
                yield write.key, since, write.at
        elif (holder := reader.get(write.key)) is None or _id_of(world, holder) != owner:
            reader[write.key] = None
            vacant.setdefault(write.key, write.at)
    for key, since in vacant.items():
        yield key, since, world.leaving_at
    for key, holder in reader.items():
        if holder is not None and (ended := world.fleet.ended_at.get(holder)) is not None:
            yield key, ended, world.leaving_at


_DISTURBS = (
    h.Trouble,
    h.Pause,
    h.Twin,
    h.Lag,
    h.Reset,
    h.Foreign,
    h.SetMode,
    h.JavaLeader,
)


def _is_calm(world: World, since: float, until: float) -> bool:
    """True if nothing disturbed the workers that live, nor shortly before."""
    recovery = 4 * world.options.failover_time + 10.0
    if until > world.leaving_at:
        return False
    for at, event in world.history.events:
        if isinstance(event, _DISTURBS):
            lasts = float(getattr(event, "seconds", 0.0))
            if isinstance(event, h.JavaLeader):
                lasts += 2 * 120.0
            if at <= until and since <= at + lasts + recovery:
                return False
    return not any(
        entry.what in {"worker failed", "resets"} and since - recovery <= entry.at <= until
        for entry in world.journal.entries
    )


LED = (
    the_lock_is_respected,
    leaders_assign_one_at_a_time,
    only_the_leader_assigns,
    nobody_takes_beside_a_live_leader,
    rows_of_the_fleet_are_written_by_their_owners,
    leases_stay_where_they_have_moved,
    leases_find_owners_in_time,
)
