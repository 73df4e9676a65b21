"""Which leases a worker goes for: adopts, takes, or steals. All workers decide alike, alone.

The rules are those of the KCL 2.x (``DynamoDBLeaseTaker``), with its known weak spots mended: the
first worker does not grab all new leases, and balance is reached in a few looks at the table.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sparkinesis.lease.lease import Lease

_LEFT_LYING = 2
"""Looks after which a lease without a living owner that nobody has taken is anybody's.

The KCL waits for three failover times (``veryOldLeaseDurationMultiplier``), and looks at the table
once in two: a released lease that is a Java worker's share would lie idle for that long."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What this worker has seen of a lease, by its own monotonic clock (seconds)."""

    counter: int
    since: float
    """When the counter was first seen at this value."""
    owners: tuple[str | None, str | None]
    """Owner and checkpoint owner."""
    owners_since: float
    foreign_renewals: int = 0
    """How often the counter moved while the lease was this worker's by name, but not held by it."""


@dataclass(frozen=True, slots=True)
class TakeSettings:
    """Durations are in seconds; see `WorkerOptions` for the defaults."""

    failover_time: float
    max_leases: int
    max_leases_to_steal: int
    handoff_timeout: float
    scan_interval: float
    """How long new leases are shared with workers that may be there: one look's interval."""


@dataclass(frozen=True, slots=True)
class TakePlan:
    """What to do now. Every list is disjoint from the others, and from the leases held."""

    adopt: tuple[Lease, ...] = ()
    """Mine by the table: handed over to me, or left by my earlier life. Take by counter."""
    overdue: tuple[Lease, ...] = ()
    """Being handed over to me by a worker that does not let go. Take by counter."""
    take: tuple[Lease, ...] = ()
    """Candidates in order of preference: take until ``need`` were got."""
    need: int = 0
    steal: tuple[Lease, ...] = ()
    """Ask for the handoff of each."""
    seize: tuple[Lease, ...] = ()
    """Owned by workers that do not know handoffs: take by counter, as these do."""
    duplicate_worker_leases: tuple[Lease, ...] = ()
    """Renewed by another process under my worker id; nothing else is planned then."""


def observe(
    known: Mapping[str, Observation],
    leases: Iterable[Lease],
    now: float,
    worker_id: str,
    held: Collection[str] = frozenset(),
) -> dict[str, Observation]:
    """What is known after one more look; leases that are gone are forgotten.

    ``now`` is the time after the scan, so that no lease seems older than it is. ``held``: the keys
    of all leases that this worker held before the scan or holds after it.

    Unlike in the KCL, a new lease without owner is first seen now, not ages ago.
    """
    seen = {}
    for lease in leases:
        owners = (lease.owner, lease.checkpoint_owner)
        old = known.get(lease.key)
        if old is None:
            seen[lease.key] = Observation(lease.counter, now, owners, now)
            continue
        has_moved = old.counter != lease.counter
        is_same = old.owners == owners
        foreign_renewals = 0
        # Not by checkpointOwner: a KCL before 3.0 leaves that attribute to a lease that it takes.
        if is_same and owners == (worker_id, None) and lease.key not in held:
            foreign_renewals = old.foreign_renewals + has_moved
        seen[lease.key] = Observation(
            lease.counter,
            now if has_moved else old.since,
            owners,
            old.owners_since if is_same else now,
            foreign_renewals,
        )
    return seen


def is_expired(observation: Observation, now: float, failover_time: float) -> bool:
    """Whether the owner has shown no life for longer than ``failover_time`` seconds."""
    return now - observation.since > failover_time


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
) -> TakePlan:
    """Decide on a snapshot, from `observe` of the same leases. Finished leases do not count.

    ``held``: keys of the leases that this worker holds. ``asked``: those that it asked the handoff
    of (``TakePlan.steal``) and did not get yet. ``busy``: shards that this worker does not read
    now; one of them without an owner does not keep the worker from stealing others. ``legacy``:
    workers that do not know handoffs (`sparkinesis.lease.rules.legacy_workers`). Needs an
    observation of each lease.
    """
    rows = [lease for lease in leases if not lease.is_finished]
    stray = [row for row in rows if row.actual_owner == worker_id and row.key not in held]
    if duplicates := [row for row in stray if observations[row.key].foreign_renewals > 1]:
        return TakePlan(duplicate_worker_leases=tuple(duplicates))
    snapshot = _Snapshot(rows, observations, worker_id, now, settings, held, asked, legacy)
    adopt = [row for row in stray if snapshot.is_adoptable(row)]
    room = max(0, settings.max_leases - len(held))
    if len(adopt) < sum(row.checkpoint_owner is None for row in stray):
        # Whether somebody else bears my name is not clear yet. Taking more under it would make
        # two workers at odds of what is still one.
        return TakePlan(adopt=tuple(adopt[:room]))
    counts = snapshot.counts()
    available = [row for row in rows if snapshot.is_available(row)]
    take, need = _plan_available(snapshot, available, counts)
    may_take = any(row.shard_id not in busy for row in available)
    steals = [] if may_take else _plan_steals(snapshot, counts, rng)
    return TakePlan(
        adopt=tuple(adopt[:room]),
        overdue=tuple(row for row in rows if snapshot.is_overdue(row)),
        take=tuple(_shuffled(take, snapshot, rng)) if need else (),
        need=need,
        steal=tuple(row for row in steals if row.owner not in legacy),
        seize=tuple(row for row in steals if row.owner in legacy),
    )


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One snapshot, through the eyes of one worker."""

    rows: list[Lease]
    observations: Mapping[str, Observation]
    worker_id: str
    now: float
    settings: TakeSettings
    held: Collection[str]
    asked: Collection[str]
    legacy: Collection[str]

    def is_adoptable(self, row: Lease) -> bool:
        """Of a lease that names this worker and is not held by it.

        One that was asked for and let go is taken up at once. Else there must have been time for
        two renewals: somebody else may be alive under this worker's id.
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
        # The worker that asked for it does not take it: anybody may.
        return self._is_late(row, 2)

    def is_overdue(self, row: Lease) -> bool:
        is_mine = row.owner == self.worker_id and row.key not in self.held
        is_late = self._is_late(row, 1) or row.checkpoint_owner in self.legacy
        return is_mine and is_late and not self.is_available(row)

    def _is_late(self, row: Lease, grace: int) -> bool:
        """The KCL, too, gives a handoff a failover time more than its timeout."""
        allowed = self.settings.handoff_timeout + grace * self.settings.failover_time
        waited = self.now - self.observations[row.key].owners_since
        return row.checkpoint_owner is not None and waited > allowed

    def _age(self, row: Lease) -> float:
        return self.now - self.observations[row.key].since

    def is_very_old(self, row: Lease) -> bool:
        """Whether nobody takes it whose share has room for it.

        A worker that has only just started counts for the shares of others, and cannot know for a
        failover time which leases have expired. Those of a crash do not wait for it. Nor does a
        released lease wait for a Java worker, which looks at the table every 20 seconds.
        """
        alive = 0.0 if row.owner is None else self.settings.failover_time
        return self._age(row) > alive + _LEFT_LYING * self.settings.scan_interval

    def is_new(self, row: Lease) -> bool:
        """Never owned, and only just created."""
        is_unused = row.counter == 0 and row.owner is None
        return is_unused and self._age(row) < self.settings.scan_interval

    def counts(self) -> Counter[str]:
        """Leases by owner; one that is being handed over is its new owner's already."""
        counts = Counter({self.worker_id: 0})
        counts.update(row.owner for row in self.rows if row.owner and not self.is_available(row))
        return counts


def _plan_available(
    snapshot: _Snapshot, available: list[Lease], counts: Counter[str]
) -> tuple[list[Lease], int]:
    """Candidates and how many to take of them.

    The target is the KCL's: leases by workers, rounded up. It counts only workers that own a
    lease, as no others are known; so of new leases only half of the target is taken at first, and
    the rest once others have scanned the table.
    """
    have = counts[snapshot.worker_id]
    room = max(0, snapshot.settings.max_leases - have)
    target = -(-len(snapshot.rows) // len(counts))
    need = min(room, max(0, target - have), len(available))
    new = sum(map(snapshot.is_new, available))
    sure = min(need, len(available) - new)
    need = sure + -(-(need - sure) // 2)
    # Who should have taken these has no room, or died before anybody saw it: fairness can wait.
    very_old = sum(map(snapshot.is_very_old, available))
    return available, max(need, min(room, very_old))


def _shuffled(candidates: list[Lease], snapshot: _Snapshot, rng: random.Random) -> list[Lease]:
    """Very old ones first, new ones last; else at random, so that two workers seldom collide."""
    shuffled = rng.sample(candidates, len(candidates))
    return sorted(shuffled, key=lambda row: (not snapshot.is_very_old(row), snapshot.is_new(row)))


def _plan_steals(snapshot: _Snapshot, counts: Counter[str], rng: random.Random) -> list[Lease]:
    """What to steal, so that all shares differ by 1 at most and nobody falls below its own.

    All compute the same shares, and who gets which lease, from one snapshot: thieves that look at
    the same time do not go for the same leases. Nobody knows of a worker without leases; it
    chooses at random, and only half of its share at first, as there may be more like it.
    """
    shares = _fair_shares(counts, len(snapshot.rows))
    surplus = _surplus(snapshot, counts, shares)
    me = snapshot.worker_id
    missing = min(shares[me], snapshot.settings.max_leases) - counts[me]
    limit = max(0, min(missing, snapshot.settings.max_leases_to_steal))
    if counts[me] == 0:
        half = min(limit, -(-missing // 2))
        return rng.sample(surplus, min(half, len(surplus)))
    before = sum(max(0, shares[who] - counts[who]) for who in counts if who < me)
    return surplus[before : before + limit]


def _fair_shares(counts: Counter[str], leases: int) -> dict[str, int]:
    """Shares that differ by 1 at most; the larger ones for who has most, so that least moves."""
    share, rest = divmod(leases, len(counts))
    by_count = sorted(counts, key=lambda who: (-counts[who], who))
    return {who: share + (place < rest) for place, who in enumerate(by_count)}


def _surplus(snapshot: _Snapshot, counts: Counter[str], shares: dict[str, int]) -> list[Lease]:
    """What workers have beyond their shares and are not handing over yet, the richest first."""
    owned: dict[str, list[Lease]] = {}
    for row in sorted(snapshot.rows, key=lambda row: row.key):
        if row.owner and row.checkpoint_owner is None and not snapshot.is_available(row):
            owned.setdefault(row.owner, []).append(row)
    victims = sorted(owned, key=lambda who: (-counts[who], who))
    return [row for who in victims for row in owned[who][: max(0, counts[who] - shares[who])]]
