"""The leases that a worker adopts, takes or steals. Each worker decides alone, by the same rules.

The rules are those of the KCL 2.x (``DynamoDBLeaseTaker``), with two improvements: the first worker
does not take all new leases, and balance is reached in a few scans of the table. Where a leader
assigns the leases (`sparkinesis.lease.assignment`), a worker only adopts, and takes if the leader
is dead.
"""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

from sparkinesis.events import LeaseOrigin
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Observation, is_expired

_LEFT_LYING = 2
"""Scans after which any worker may take a lease that has no live owner.

The KCL waits for three failover times (``veryOldLeaseDurationMultiplier``), and scans the table
only every two failover times: a released lease in a Java worker's share would be idle that long."""


_LEFT_BY_LEADER = 3
"""Failover times after which a worker takes a lease of one of several streams although there is a
leader, which has left that lease alone: its own application lacks the stream. A Java leader assigns
leases every two failover times."""


Origin: TypeAlias = tuple[LeaseOrigin, str | None, float | None]
"""Where a lease comes from, its previous owner, and the seconds for which that one was silent."""


class Reach(enum.Enum):
    """How far a worker goes for more leases without being given them."""

    ADOPT = enum.auto()
    """It adopts leases that the table gives it: a leader assigns all others of its streams."""
    TAKE = enum.auto()
    """It also takes leases without a live owner: the leader is dead."""
    STEAL = enum.auto()
    """It also steals leases for balance: there is no leader."""


class TakeSettings(msgspec.Struct, frozen=True):
    """The settings for taking leases, in seconds; see `WorkerOptions` for the defaults."""

    failover_time: float
    max_leases: int
    max_leases_to_steal: int
    handoff_timeout: float
    scan_interval: float
    """The time between two scans. New leases younger than this are partly left to others."""


class TakePlan(msgspec.Struct, frozen=True):
    """The writes to make now. The lists are disjoint, and do not include held leases."""

    adopt: tuple[Lease, ...] = ()
    """The lease table already names this worker as owner: after a handoff or a restart. Take by
    counter."""
    overdue: tuple[Lease, ...] = ()
    """Handoffs to this worker whose owners did not release in time. Take by counter."""
    take: tuple[Lease, ...] = ()
    """Candidates in order of preference: take until ``need`` are acquired."""
    need: int = 0
    steal: tuple[Lease, ...] = ()
    """Request the handoff of each."""
    seize: tuple[Lease, ...] = ()
    """Owned by workers that do not support handoffs: take by counter, as these workers do."""
    duplicate_worker_leases: tuple[Lease, ...] = ()
    """Leases that another process renews under this worker's id; nothing else is planned then."""


def plan_takes(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    worker_id: str,
    now: float,
    settings: TakeSettings,
    *,
    rng: random.Random,
    held: Collection[str] = frozenset(),
    asked: Collection[str] = frozenset(),
    busy: Collection[str] = frozenset(),
    legacy: Collection[str] = frozenset(),
    can_read: Callable[[Lease], bool] = lambda _: True,
    reach: Reach = Reach.STEAL,
) -> TakePlan:
    """Return the plan for one scan, given `observe` of the same leases. Ignores finished leases.

    ``held``: keys of the leases that this worker holds. ``asked``: keys of the leases that it has
    requested (``TakePlan.steal``) but does not hold yet. ``busy``: keys of leases that this worker
    must not take now; such a lease without an owner does not keep the worker from stealing others.
    ``legacy``: workers that do not support handoffs (`sparkinesis.lease.rules.other_workers`).
    ``can_read``: returns False for a lease that this worker must leave alone, because it cannot
    read the stream. Such a lease counts only in the load of a live worker that reads it.
    ``reach``: how far the worker may go, if a leader assigns the leases.
    Each lease needs an observation.
    """
    unfinished = [lease for lease in leases if not lease.is_finished]
    rows = [row for row in unfinished if can_read(row)]
    out_of_reach = [
        row
        for row in unfinished
        if not can_read(row)
        and row.owner not in {None, worker_id}
        and not is_expired(observations[row.key], now, settings.failover_time)
    ]
    stray = [row for row in rows if row.actual_owner == worker_id and row.key not in held]
    if duplicates := [row for row in stray if observations[row.key].foreign_renewals > 1]:
        return TakePlan(duplicate_worker_leases=tuple(duplicates))
    snapshot = _Snapshot(
        rows, out_of_reach, observations, worker_id, now, settings, held, asked, legacy
    )
    adopt = [row for row in stray if snapshot.is_adoptable(row)]
    room = max(0, settings.max_leases - len(held))
    if len(adopt) < sum(row.checkpoint_owner is None for row in stray):
        # Another process may have this worker's id. Until that is clear, taking more leases
        # could set two workers against each other.
        return TakePlan(adopt=tuple(adopt[:room]))
    overdue = tuple(row for row in rows if snapshot.is_overdue(row))
    if reach is Reach.ADOPT:
        left = [row for row in rows if row.stream is not None and snapshot.is_left(row)]
        return TakePlan(
            adopt=tuple(adopt[:room]),
            overdue=overdue,
            take=tuple(_shuffled(left, snapshot, rng)),
            need=min(room, len(left)),
        )
    counts = snapshot.counts()
    available = [row for row in rows if snapshot.is_available(row)]
    take, need = _plan_available(snapshot, available, counts)
    may_take = reach is Reach.TAKE or any(row.key not in busy for row in available)
    steals = [] if may_take else _plan_steals(snapshot, counts, rng)
    return TakePlan(
        adopt=tuple(adopt[:room]),
        overdue=overdue,
        take=tuple(_shuffled(take, snapshot, rng)) if need else (),
        need=need,
        steal=tuple(row for row in steals if row.owner not in legacy),
        seize=tuple(row for row in steals if row.owner in legacy),
    )


class _Snapshot(msgspec.Struct, frozen=True):
    """One scan of the table, as one worker sees it."""

    rows: list[Lease]
    """The leases that this worker may read."""
    out_of_reach: list[Lease]
    """Leases of other live workers that this worker cannot read."""
    observations: Mapping[str, Observation]
    worker_id: str
    now: float
    settings: TakeSettings
    held: Collection[str]
    asked: Collection[str]
    legacy: Collection[str]

    def is_adoptable(self, row: Lease) -> bool:
        """Return True if this worker may adopt a lease that names it and that it does not hold.

        A requested lease that was released is adopted at once. Otherwise the time of two renewals
        must have passed: another process may be alive under this worker's id.
        """
        if row.checkpoint_owner is not None:
            return False
        was_given = row.key in self.asked and not self.observations[row.key].foreign_renewals
        return was_given or self._age(row) > self.settings.failover_time * 2 / 3

    def is_available(self, row: Lease) -> bool:
        if row.key in self.held or (row.owner == self.worker_id and row.checkpoint_owner is None):
            return False
        if row.owner is None or self._age(row) > self.settings.failover_time:
            return True
        # The worker that requested the lease does not take it: any worker may.
        return self._is_late(row, 2)

    def is_left(self, row: Lease) -> bool:
        """Return True if the lease lies there although a leader assigns leases."""
        patience = _LEFT_BY_LEADER * self.settings.failover_time
        return self.is_available(row) and self._age(row) > patience

    def is_overdue(self, row: Lease) -> bool:
        is_mine = row.owner == self.worker_id and row.key not in self.held
        is_late = self._is_late(row, 1) or row.checkpoint_owner in self.legacy
        return is_mine and is_late and not self.is_available(row)

    def _is_late(self, row: Lease, grace: int) -> bool:
        """Return True if a handoff is late; the KCL, too, allows a failover time more."""
        allowed = self.settings.handoff_timeout + grace * self.settings.failover_time
        waited = self.now - self.observations[row.key].owners_since
        return row.checkpoint_owner is not None and waited > allowed

    def _age(self, row: Lease) -> float:
        return self.now - self.observations[row.key].since

    def is_very_old(self, row: Lease) -> bool:
        """Return True if no worker with room in its share has taken the lease for some scans.

        A worker that has just started counts in the shares of others, but cannot know for a
        failover time which leases have expired. The leases of a crashed worker do not wait for it.
        Nor does a released lease wait for a Java worker, which scans the table every 20 seconds.
        """
        alive = 0.0 if row.owner is None else self.settings.failover_time
        return self._age(row) > alive + _LEFT_LYING * self.settings.scan_interval

    def is_new(self, row: Lease) -> bool:
        """Return True for a lease that was just created and never owned."""
        return row.counter == 0 and self._age(row) < self.settings.scan_interval

    def counts(self) -> Counter[str]:
        """Count the leases by owner; a lease in handoff counts for its new owner."""
        counts = Counter({self.worker_id: 0})
        read = [row for row in self.rows if not self.is_available(row)]
        counts.update(row.owner for row in (*read, *self.out_of_reach) if row.owner)
        return counts

    @property
    def load(self) -> int:
        """The number of leases that the workers share."""
        return len(self.rows) + len(self.out_of_reach)


def _plan_available(
    snapshot: _Snapshot, available: list[Lease], counts: Counter[str]
) -> tuple[list[Lease], int]:
    """Return the candidates, and the number of them to take.

    The target is the KCL's: leases divided by workers, rounded up. Only workers that own a lease
    are known and count. So a worker takes only half of its need in new leases at first, and the
    rest after others have scanned the table.
    """
    have = counts[snapshot.worker_id]
    room = max(0, snapshot.settings.max_leases - have)
    target = -(-snapshot.load // len(counts))
    need = min(room, max(0, target - have), len(available))
    new = sum(map(snapshot.is_new, available))
    sure = min(need, len(available) - new)
    need = sure + -(-(need - sure) // 2)
    # The workers that should have taken these have no room or died: fairness can wait.
    very_old = sum(map(snapshot.is_very_old, available))
    return available, max(need, min(room, very_old))


def _shuffled(candidates: list[Lease], snapshot: _Snapshot, rng: random.Random) -> list[Lease]:
    """Order candidates: very old first, new last, else random: workers seldom collide."""
    shuffled = rng.sample(candidates, len(candidates))
    return sorted(shuffled, key=lambda row: (not snapshot.is_very_old(row), snapshot.is_new(row)))


def _plan_steals(snapshot: _Snapshot, counts: Counter[str], rng: random.Random) -> list[Lease]:
    """Return the leases to steal, so that shares differ by 1 at most and no worker loses its own.

    From the same scan, all workers compute the same shares and the same recipients, so that workers
    that scan at the same time do not steal the same leases. A worker without leases is not known to
    the others: it chooses at random, and only half of its share at first, as there may be more
    workers without leases.
    """
    shares = _fair_shares(counts, snapshot.load)
    surplus = _surplus(snapshot, counts, shares)
    me = snapshot.worker_id
    missing = min(shares[me], snapshot.settings.max_leases) - counts[me]
    limit = max(0, min(missing, snapshot.settings.max_leases_to_steal))
    if counts[me] == 0:
        half = min(limit, -(-missing // 2))
        return rng.sample(surplus, min(half, len(surplus)))
    before = sum(max(0, shares[who] - counts[who]) for who in counts if who < me)
    # The workers before this one may be unable to take what is meant for them: their streams may
    # be others, or they have the most leases that they may have.
    return surplus[before : before + limit] or surplus[-limit:] if limit else []


def _fair_shares(counts: Counter[str], leases: int) -> dict[str, int]:
    """Return shares that differ by 1 at most; workers with most leases get the larger shares."""
    share, rest = divmod(leases, len(counts))
    by_count = sorted(counts, key=lambda who: (-counts[who], who))
    return {who: share + (place < rest) for place, who in enumerate(by_count)}


def _surplus(snapshot: _Snapshot, counts: Counter[str], shares: dict[str, int]) -> list[Lease]:
    """Return the leases beyond their owners' shares and not in handoff, largest owners first."""
    owned: dict[str, list[Lease]] = {}
    for row in sorted(snapshot.rows, key=lambda row: row.key):
        if row.owner and row.checkpoint_owner is None and not snapshot.is_available(row):
            owned.setdefault(row.owner, []).append(row)
    victims = sorted(owned, key=lambda who: (-counts[who], who))
    return [row for who in victims for row in owned[who][: max(0, counts[who] - shares[who])]]


def still_asked(
    asked: Mapping[str, str | None],
    leases: Iterable[Lease],
    worker_id: str,
    *,
    is_consistent: bool,
) -> dict[str, str | None]:
    """Return the requests of this worker that still hold by a scan of the table.

    ``asked``: leases that this worker has requested or tried to take, and their previous owners. A
    scan that is not consistent may be older than the request, and show the previous owner.
    """
    owners = {row.key: row.owner for row in leases if not row.is_finished}
    return {
        key: victim
        for key, victim in asked.items()
        if key in owners
        and (owners[key] == worker_id or (owners[key] == victim and not is_consistent))
    }


def origin_of(
    row: Lease,
    seen: Observation,
    worker_id: str,
    now: float,
    *,
    asked: Mapping[str, str | None],
    expired: Collection[str],
    legacy: Collection[str],
) -> Origin:
    """Return where a lease comes from.

    ``asked`` as in `still_asked`, ``legacy`` as in `plan_takes`; ``expired``: keys of leases.
    """
    owner = row.actual_owner
    if owner is None:
        return LeaseOrigin.UNOWNED, None, None
    if owner == worker_id:
        victim = asked.get(row.key)
        if victim is None or victim == worker_id:
            return LeaseOrigin.OWN, None, None
        return LeaseOrigin.HANDED_OVER, victim, None
    if row.key in expired:
        return LeaseOrigin.EXPIRED, owner, now - seen.since
    if owner in legacy:
        return LeaseOrigin.LEGACY_OWNER, owner, None
    return LeaseOrigin.LATE_HANDOVER, owner, now - seen.owners_since
