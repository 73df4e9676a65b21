"""A worker's membership of a fleet that may have a leader, as a KCL 3.x has.

The worker tells its load in a row of its own, follows the fleet's version, and stands for leader.
If a leader assigns the leases, the worker adopts those that it is given. If the leader is dead,
each worker takes leases as in a fleet without one: a crash costs a failover time, whoever crashed.
"""

from __future__ import annotations

import logging
import math
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from sparkinesis.errors import AccessDeniedError, SparkinesisError
from sparkinesis.events import (
    FleetRowsFailed,
    FleetRowsRecovered,
    LeadershipChanged,
    Listener,
    ignore,
)
from sparkinesis.lease.leading import by_count, by_load
from sparkinesis.lease.leading.brief_look import (
    FULL_EVERY,
    WORTHWHILE,
    PartialScan,
    leader_lives,
    next_looks,
    standbys,
)
from sparkinesis.lease.leading.client_version import (
    INIT,
    VERSION_2X,
    Sharing,
    VersionRow,
    missing_row,
    sharing_of,
)
from sparkinesis.lease.leading.coordination import Coordination, SeenRows, seen_in
from sparkinesis.lease.leading.cpu import CpuMeter
from sparkinesis.lease.leading.leader_lock import (
    HeldLock,
    LeaderLock,
    SeenLock,
    can_acquire,
    new_lock,
    observe,
)
from sparkinesis.lease.leading.members import (
    WorkerLoad,
    member,
    releasing_workers,
    silent_workers,
    unproven_workers,
)
from sparkinesis.lease.leading.moves import AssignSettings, Move, Run, lately, resting
from sparkinesis.lease.leading.own_rows import create_index
from sparkinesis.lease.leading.standing import EACH_TAKES, Standing
from sparkinesis.lease.leading.worker_stats import CPU, INTERVAL, WorkerStats, with_sample
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import (
    Observation,
    renewing_workers,
    vacant_leases,
)
from sparkinesis.lease.rules.taker import Reach, TakeSettings
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable

_log = logging.getLogger(__name__)

Balance: TypeAlias = Literal["count", "load", "throughput"]
"""By what a leader balances the workers; see ``WorkerOptions.balance``."""

_FIND_EVERY = 60.0
"""Seconds between two looks where the rows are, and at the fleet's version, as in a KCL 3.x."""
_BALANCE_EVERY = 6
"""Failover times between two runs that balance: a KCL's leader balances in each third run, and its
runs are two failover times apart."""
_HEARTBEAT_EVERY = 0.3
"""Failover times after which the leader proves that it is alive; just before a third is over."""


class Membership:
    """For the thread that takes leases; `leave` for the thread that ends the worker after it.

    clock: monotonic. wall_clock_ms: for rows that hold an instant, if the service tells no time.
    meter: measures the CPU utilization, if it can; None: this worker's load is its throughput.
    """

    def __init__(
        self,
        table: LeaseTable,
        application: str,
        worker_id: str,
        *,
        balance: Balance,
        settings: TakeSettings,
        clock: Callable[[], float],
        wall_clock_ms: Callable[[], int],
        rng: random.Random,
        meter: CpuMeter | None,
        tell: Listener = ignore,
    ) -> None:
        self._tell = tell
        self._table = table
        self._application = application
        self._worker_id = worker_id
        self._balance = balance
        self._failover_time = settings.failover_time
        self._handoff_timeout = settings.handoff_timeout
        self._settings = AssignSettings(max_leases=settings.max_leases)
        self._clock = clock
        self._wall_clock_ms = wall_clock_ms
        self._rng = rng
        self._meter = meter if meter is not None and meter.can_measure else None
        self._samples: dict[str, tuple[float, ...]] = {}
        self._coordination: Coordination | None = None
        self._found_at: float | None = None
        """The time at which the place of the rows was last looked up."""
        self._version: VersionRow | None = None
        self._told: WorkerStats | None = None
        """This worker's row, as last written."""
        self._told_at: float | None = None
        self._seen_lock: SeenLock | None = None
        self._leader_tells: bool = True
        """False if the row of the leader's load is old: the leader ended long ago."""
        self._held_lock: HeldLock | None = None
        """The lock, while this worker leads."""
        self._owners: dict[str, str | None] = {}
        """The owners of the leases by the last look."""
        self._moved_at: dict[str, float] = {}
        """The time at which a lease was first seen to have gone from one worker to another, or at
        which this leader has decided so."""
        self._balance_at = math.inf
        self._members: frozenset[str] = frozenset()
        """The workers to which this leader has last assigned leases: it balances at once if there
        are others, as after an election."""
        self._silent: Mapping[str, float] = {}
        """The workers that this leader believes to be dead."""
        self._has_led = False
        self._was_brief = False
        self._whole_since: float | None = None
        """The time of the first look at the whole table after brief ones; None: no look was brief.
        """
        self._lacks_index = False
        self._index_at: float | None = None
        """The time at which this leader has last seen to the index by owner."""
        self._trouble: str | None = None

    def look(
        self,
        scan: TableScan,
        observations: Mapping[str, Observation],
        expired: Collection[str],
        now: float,
        *,
        may_be_brief: bool = False,
        wanted: Iterable[Lease] | None = None,
    ) -> Standing:
        """Return this worker's standing after a scan of the table, at ``now``.

        Each lease needs an observation. expired: the keys of the leases whose owners are silent.
        may_be_brief: whether the worker can do with its own rows while another one leads. wanted:
        the leases that this worker assigns if it leads; None: all.
        Raises nothing: a worker that cannot reach the rows of coordination stays what it was.
        """
        if self._was_brief:
            self._was_brief, self._whole_since = False, now
        try:
            standing = self._look(
                scan, observations, expired, now, may_be_brief=may_be_brief, wanted=wanted
            )
        except SparkinesisError as error:
            if self._trouble is None:
                self._tell(FleetRowsFailed(str(error)))
            self._trouble = str(error)
            if sharing_of(self._version) is Sharing.TAKEN:
                return EACH_TAKES
            return Standing(is_led=True, reach=self._reach(scan.leases, expired, now))
        if self._trouble is not None:
            self._trouble = None
            self._tell(FleetRowsRecovered())
        return standing

    def look_briefly(
        self,
        rows: TableScan,
        look: PartialScan,
        observations: Mapping[str, Observation],
        now: float,
    ) -> bool:
        """Return True if the leader lives, by some rows at ``now``; False: read the whole table.

        Each lease needs an observation. Raises nothing.
        """
        self._was_brief = True
        seen = seen_in(rows.coordination)
        if sharing_of(seen.version) is not Sharing.LED:
            return False
        assert self._coordination is not None, "a look at all rows has told to look briefly"
        self._seen_lock = lock = observe(self._seen_lock, seen.lock, now)
        try:
            self._tell_load(self._coordination, int(self._second(rows)), now)
        except SparkinesisError:
            return False  # the whole look tells it
        return (
            lock is not None
            and lock.lock.owner == look.leader
            and not lock.is_expired(now)
            and leader_lives(look, rows.leases, observations, now, self._failover_time)
        )

    def leave(self) -> None:
        """Take this worker out of the fleet, and give up the leadership. Raises nothing.

        In this order: the next leader, who has seen the lock released, must not find this worker.
        """
        told, self._told = self._told, None
        try:
            if told is not None:
                assert self._coordination is not None, "it has written the row"
                self._coordination.delete_stats(told)
        except SparkinesisError as error:
            _log.warning("Leaving the fleet failed; its leader will notice: %s", error)
        try:
            self._resign()
        except SparkinesisError as error:
            _log.warning("Giving up the leadership failed; the lock will expire: %s", error)

    def _look(
        self,
        scan: TableScan,
        observations: Mapping[str, Observation],
        expired: Collection[str],
        now: float,
        *,
        may_be_brief: bool,
        wanted: Iterable[Lease] | None,
    ) -> Standing:
        seen = seen_in(scan.coordination)
        coordination = self._find(seen, now)
        version = self._version
        is_led = sharing_of(version) is Sharing.LED
        lock: LeaderLock | None = None
        if is_led:
            # First: a worker that cannot tell its load must see that the leader is alive.
            lock = coordination.lock() if coordination.is_beside else seen.lock
            self._seen_lock = observe(self._seen_lock, lock, now)
            told = {one.worker_id: one for one in seen.stats}.get(lock.owner if lock else "")
            self._leader_tells = told is None or told.is_alive(self._second(scan))
        if version is not None and version.now.name not in {INIT, VERSION_2X}:
            self._tell_load(coordination, int(self._second(scan)), now)
        if not is_led:
            self._resign()
            return EACH_TAKES
        leaving = releasing_workers(self._owners, scan.leases)
        self._note_moves(scan.leases, now)
        has_led = self._has_led
        is_large = may_be_brief and not coordination.is_beside and len(scan.leases) >= WORTHWHILE
        if not self._leads(coordination, lock, now):
            reach = self._reach(scan.leases, expired, now)
            brief: PartialScan | None = None
            if is_large and reach is Reach.ADOPT and lock is not None:
                second = self._second(scan)
                alive = [one.worker_id for one in seen.stats if one.is_alive(second)]
                if self._worker_id not in standbys(alive, lock.owner):
                    brief = next_looks(
                        scan.leases, observations, lock.owner, now, self._failover_time
                    )
            return Standing(is_led=True, reach=reach, brief=brief)
        if is_large:
            self._see_to_index(now)
        stats = coordination.stats(seen)
        if (mine := self._told) is not None:
            stats[mine.worker_id] = mine  # the scan is older
        second = self._second(scan)
        coordination.delete_stale(stats.values(), second)
        leases = [row for row in scan.leases if not row.is_finished]
        reported = {one.worker_id: float(one.updated_s) for one in stats.values()}
        if not has_led:
            self._silent = unproven_workers(reported, leases, second - self._failover_time)
        renewing = renewing_workers(leases, observations, now, self._failover_time)
        self._silent = silent_workers(self._silent, reported, leases, expired, renewing)
        absent = (self._silent.keys() | leaving) - {self._worker_id}
        members = members_of(stats.values(), absent, second)
        if wanted is not None:
            leases = [row for row in wanted if not row.is_finished]
        moves = self._assign(members, leases, observations, expired, now)
        return Standing(is_led=True, reach=Reach.ADOPT, moves=moves, leads_brief_readers=is_large)

    # --- the rows

    def _find(self, seen: SeenRows, now: float) -> Coordination:
        """Return the place of the rows, and note the fleet's version."""
        wants_leader = self._balance != "count"
        coordination = self._coordination
        if self._is_due(self._found_at, _FIND_EVERY, now):
            # A row among the leases says that no worker of the fleet is older than a KCL 3.5.
            may_share = wants_leader or seen.version is not None
            try:
                coordination = Coordination.find(
                    self._table, self._application, may_share_table=may_share
                )
            except AccessDeniedError:
                # Whoever only counts, beside workers that may be of any kind, needs no permission
                # for tables of a KCL 3.0, until there are such tables.
                if wants_leader:
                    raise
                coordination = Coordination.among_leases(self._table, may_share_table=may_share)
            self._coordination = coordination
            self._version = coordination.version() if coordination.is_beside else seen.version
            self._found_at = now
        elif seen.version is not None:
            self._version = seen.version
        assert coordination is not None, "the first look looks for it"
        missing = missing_row(
            self._version, self._worker_id, self._wall_clock_ms(), by_load=wants_leader
        )
        if missing is not None:
            self._version = coordination.create_version(missing)
        return coordination

    def _second(self, scan: TableScan) -> float:
        """Return the epoch second of a scan, by the server's clock if it tells."""
        return self._wall_clock_ms() / 1000 if scan.second is None else scan.second

    def _tell_load(self, coordination: Coordination, second: int, now: float) -> None:
        if not self._is_due(self._told_at, min(INTERVAL, 3 * self._failover_time), now):
            return
        if self._meter is not None:
            self._samples = with_sample(self._samples, CPU, self._meter.measure())
        limits = dict.fromkeys(self._samples, 100)
        stats = WorkerStats(self._worker_id, second, self._samples, limits)
        coordination.write_stats(stats)
        self._told, self._told_at = stats, now

    @staticmethod
    def _is_due(last: float | None, every: float, now: float) -> bool:
        return last is None or now - last >= every

    # --- the leader

    def _leads(self, coordination: Coordination, lock: LeaderLock | None, now: float) -> bool:
        """Return True if this worker leads, after a heartbeat or an election that is due."""
        held = self._held_lock
        if held is not None:
            began = self._clock()
            if began - held.since >= _HEARTBEAT_EVERY * self._failover_time:
                self._held_lock = held = held.with_heartbeat(self._new_version())
                self._held_lock = held = coordination.heartbeat(held, began)
        elif can_acquire(self._seen_lock, now) and self._knows_all(now):
            began = self._clock()
            mine = new_lock(self._worker_id, self._failover_time, self._new_version())
            self._held_lock = held = coordination.acquire(lock, mine, began)
            self._members = frozenset()
        leads = held is not None and held.leads(self._clock())
        self._note_leadership(leads)
        return leads

    def _knows_all(self, now: float) -> bool:
        """Return True if this worker would notice each lease that has expired.

        A worker that has read only its own rows leaves the lead to a standby, which knows at once.
        """
        since = self._whole_since
        return since is None or now - since > self._failover_time

    def _see_to_index(self, now: float) -> None:
        """Create the index by owner that the other workers read."""
        if not self._is_due(self._index_at, FULL_EVERY, now):
            return
        self._index_at = now
        try:
            create_index(self._table)
        except SparkinesisError as error:
            if not self._lacks_index:
                _log.warning(
                    "The index of the lease table by owner is not created, so each worker reads "
                    "the whole table: %s",
                    error,
                )
            self._lacks_index = True

    def _note_leadership(self, leads: bool) -> None:
        if leads != self._has_led:
            self._has_led = leads
            self._tell(LeadershipChanged(self._worker_id, leads))

    def _new_version(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _resign(self) -> None:
        held, self._held_lock = self._held_lock, None
        self._note_leadership(False)
        if held is not None:
            assert self._coordination is not None, "it has written the lock"
            self._coordination.release(held)

    def _reach(self, leases: Collection[Lease], expired: Collection[str], now: float) -> Reach:
        """Return how far a worker that does not lead goes for leases: by itself once nobody leads.

        A leader is dead once all of its leases have expired, or its lock has, or if it has not told
        its load for a minute. A Java leader's lock takes 120 seconds to expire.
        """
        seen = self._seen_lock
        if seen is None or seen.is_expired(now) or not self._leader_tells:
            return Reach.TAKE
        its = [row.key for row in leases if row.actual_owner == seen.lock.owner]
        is_dead = bool(its) and all(key in expired for key in its)
        return Reach.TAKE if is_dead else Reach.ADOPT

    def _note_moves(self, leases: Collection[Lease], now: float) -> None:
        owners = {row.key: row.owner for row in leases}
        moved = {
            key: now
            for key, owner in owners.items()
            if owner is not None and self._owners.get(key, owner) not in {None, owner}
        }
        self._moved_at = lately({**self._moved_at, **moved}, now, self._failover_time)
        self._owners = owners

    def _assign(
        self,
        members: Sequence[WorkerLoad],
        leases: Sequence[Lease],
        observations: Mapping[str, Observation],
        expired: Collection[str],
        now: float,
    ) -> tuple[Move, ...]:
        vacant = vacant_leases(
            leases,
            observations,
            expired,
            now,
            late=self._handoff_timeout + 2 * self._failover_time,
        )
        present = frozenset(one.worker_id for one in members)
        balances = now >= self._balance_at or bool(present - self._members)
        if balances:
            self._balance_at = now + _BALANCE_EVERY * self._failover_time
        self._members = present
        plan = by_count.plan if self._balance == "count" else by_load.plan
        run = Run(
            leases,
            members,
            vacant,
            resting(leases, self._moved_at),
            balances,
            self._settings,
            self._rng,
        )
        moves = to_able_workers(plan(run), present, self._rng)
        # At once: a look that is behind the table may miss who had the lease.
        moved = {move.lease.key: now for move in moves if move.lease.owner not in {None, move.to}}
        self._moved_at = {**self._moved_at, **moved}
        return moves


def members_of(
    stats: Collection[WorkerStats], absent: Collection[str], second: float
) -> list[WorkerLoad]:
    """Return the workers to which a leader may assign leases at an epoch second.

    absent: workers that have crashed or are about to end, although their rows are young.
    """
    return [
        member(one.worker_id, {} if one.by_throughput else one.samples, one.limits)
        for one in stats
        if one.is_alive(second) and one.worker_id not in absent
    ]


def to_able_workers(
    moves: Iterable[Move], workers: Collection[str], rng: random.Random
) -> tuple[Move, ...]:
    """Return the moves without those to a worker on which ``on_error`` has stopped the shard.

    The shard goes to another worker in its place, or stays where it is if there is none.
    """
    found = []
    for move in moves:
        row = move.lease
        if move.to not in row.stopped_by:
            found.append(move)
        elif able := sorted(set(workers) - {row.actual_owner, *row.stopped_by}):
            found.append(Move(row, rng.choice(able)))
    return tuple(found)
