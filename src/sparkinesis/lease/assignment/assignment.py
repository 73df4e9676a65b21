"""A worker's part in the assignment of leases by a leader, as a KCL 3.x has it.

The worker reports its load in a row of its own, follows the application's version, and is a
candidate for leader. If a leader assigns the leases, the worker adopts those that it is given. If
the leader is dead, each worker takes leases as without one: a crash costs a failover time, whoever
crashed.
"""

# Who leads. All of this is decided after each scan, by one worker for itself, in this order:
#
# 1. The version row says whether anybody leads, whatever this application wants: workers of both
#    kinds beside each other would take leases from each other without end. Only an application
#    that wants a leader creates the row.
# 2. The lock is read before the worker reports its load: a worker that cannot report must still
#    see that the leader lives.
# 3. The load is reported. Workers of which a Java leader knew nothing took leases beside it, and
#    the Java workers starved.
# 4. A worker that does not lead adopts what it is given, and takes leases as without a leader once
#    that seems dead by any of three signs: its lock, its leases, its report (`Leadership.reach`).
# 5. The leader assigns (`Assigner`). Two may believe that they lead for a while; see there.
#
# A worker that leaves deletes the row of its load first, and releases the lock after it. In the
# other order, the next leader saw the lock released and the worker still there, and gave it leases
# that nobody was left to withdraw.
#
# If the rows cannot be read or written, the worker stays what it was: nobody begins to take leases
# from others because of an outage. `FleetRowsFailed` reports the outage once.

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import (
    FleetRowsFailed,
    FleetRowsRecovered,
    LeadershipChanged,
    Listener,
    ignore,
)
from sparkinesis.lease.assignment.assigner import Assigner, Balance
from sparkinesis.lease.assignment.coordination import Coordination, CurrentRows, SeenRows, seen_in
from sparkinesis.lease.assignment.coordinator_state import (
    HeldLock,
    LeaderLock,
    SeenLock,
    Sharing,
    can_acquire,
    new_lock,
    observe,
    sharing_of,
)
from sparkinesis.lease.assignment.load_report import CpuMeter, LoadReporter
from sparkinesis.lease.assignment.moves import EACH_TAKES, AssignmentState
from sparkinesis.lease.assignment.partial_scan import (
    WORTHWHILE,
    OwnerIndex,
    PartialScan,
    leader_lives,
    next_partial_scan,
    standbys,
)
from sparkinesis.lease.assignment.worker_stats import WorkerStats
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Observation
from sparkinesis.lease.rules.taker import Reach, TakeSettings
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable

_log = logging.getLogger(__name__)

_HEARTBEAT_EVERY = 0.3
"""Failover times after which the leader proves that it is alive; just before a third is over."""


class Assignment:
    """For the thread that scans the table; `leave` for the thread that ends the worker after it.

    clock: monotonic. wall_clock_ms: for rows that hold an instant, if the service sends no time.
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
        publish: Listener = ignore,
    ) -> None:
        wants_leader = balance != "count"
        self._worker_id = worker_id
        self._failover_time = settings.failover_time
        self._wall_clock_ms = wall_clock_ms
        self._publish = publish
        self._rows = CurrentRows(
            table, application, worker_id, wall_clock_ms, wants_leader=wants_leader
        )
        self._load = LoadReporter(worker_id, settings.failover_time, meter)
        self._leadership = Leadership(worker_id, settings.failover_time, clock, rng, publish)
        self._assigner = Assigner(worker_id, balance, settings, rng)
        self._index = OwnerIndex(table)
        self._was_partial = False
        self._whole_since: float | None = None
        """The time of the first scan of the whole table after partial ones; None: none was."""
        self._trouble: str | None = None

    @property
    def has_leader(self) -> bool:
        """True if a leader assigns the leases, by the version as last read."""
        return self._rows.has_leader

    def after_scan(
        self,
        scan: TableScan,
        observations: Mapping[str, Observation],
        expired: Collection[str],
        now: float,
        *,
        may_be_partial: bool = False,
        wanted: Iterable[Lease] | None = None,
    ) -> AssignmentState:
        """Return the state after a scan of the table, at ``now``.

        Each lease needs an observation. expired: the keys of the leases whose owners are silent.
        may_be_partial: whether the worker may read only its own rows while another one leads.
        wanted: the leases that this worker assigns if it leads; None: all.
        Raises nothing: a worker that cannot reach the rows of coordination stays what it was.
        """
        if self._was_partial:
            self._was_partial, self._whole_since = False, now
        try:
            state = self._follow(
                scan,
                observations,
                expired,
                now,
                may_be_partial=may_be_partial,
                wanted=scan.leases if wanted is None else wanted,
            )
        except SparkinesisError as error:
            if self._trouble is None:
                self._publish(FleetRowsFailed(str(error)))
            self._trouble = str(error)
            if not self._rows.has_leader:
                return EACH_TAKES
            reach = self._leadership.reach(scan.leases, expired, now)
            return AssignmentState(has_leader=True, reach=reach)
        if self._trouble is not None:
            self._trouble = None
            self._publish(FleetRowsRecovered())
        return state

    def after_partial_scan(
        self,
        rows: TableScan,
        scan: PartialScan,
        observations: Mapping[str, Observation],
        now: float,
    ) -> bool:
        """Return True if the leader lives, by some rows at ``now``; False: read the whole table.

        Each lease needs an observation. Raises nothing.
        """
        self._was_partial = True
        seen = seen_in(rows.coordination)
        if sharing_of(seen.version) is not Sharing.ASSIGNED:
            return False
        lock = self._leadership.observe(seen.lock, now)
        assert self._rows.place is not None, "a scan of all rows has planned this one"
        try:
            self._load.report(self._rows.place, int(self._second(rows)), now)
        except SparkinesisError:
            return False  # the scan of the whole table reports it
        return (
            lock is not None
            and lock.lock.owner == scan.leader
            and not lock.is_expired(now)
            and leader_lives(scan, rows.leases, observations, now, self._failover_time)
        )

    def leave(self) -> None:
        """Leave the workers that a leader assigns leases to, and give up the lock. Raises nothing.

        In this order: the next leader, who has seen the lock released, must not find this worker.
        """
        try:
            self._load.withdraw(self._rows.place)
        except SparkinesisError as error:
            _log.warning("Leaving the fleet failed; its leader will notice: %s", error)
        try:
            self._leadership.resign(self._rows.place)
        except SparkinesisError as error:
            _log.warning("Giving up the leadership failed; the lock will expire: %s", error)

    def _follow(
        self,
        scan: TableScan,
        observations: Mapping[str, Observation],
        expired: Collection[str],
        now: float,
        *,
        may_be_partial: bool,
        wanted: Iterable[Lease],
    ) -> AssignmentState:
        seen, second = seen_in(scan.coordination), self._second(scan)
        rows = self._rows.find(seen, now)
        has_leader, lock = self._rows.has_leader, seen.lock
        if has_leader:
            lock = rows.lock() if rows.is_beside else lock
            self._leadership.observe(lock, now)
            self._leadership.observe_report(seen.stats, second)
        if self._rows.take_reports:
            self._load.report(rows, int(second), now)
        if not has_leader:
            self._leadership.resign(rows)
            return EACH_TAKES
        self._assigner.observe_owners(scan.leases, now)
        has_led, leadership = self._leadership.leads, self._leadership
        is_large = may_be_partial and not rows.is_beside and len(scan.leases) >= WORTHWHILE
        if not leadership.use(rows, lock, now, may_acquire=self._knows_all(now)):
            reach = leadership.reach(scan.leases, expired, now)
            partial: PartialScan | None = None
            if is_large and reach is Reach.ADOPT:
                partial = self._next_partial_scan(scan.leases, seen, observations, second, now)
            return AssignmentState(has_leader=True, reach=reach, partial=partial)
        if is_large:
            self._index.ensure(now)
        stats = rows.stats(seen)
        if (mine := self._load.row) is not None:
            stats[mine.worker_id] = mine  # the scan is older
        rows.delete_stale(stats.values(), second)
        if not has_led:
            self._assigner.begin(stats.values(), scan.leases, second)
        moves = self._assigner.assign(
            stats.values(), scan.leases, wanted, observations, expired, second=second, now=now
        )
        return AssignmentState(
            has_leader=True, reach=Reach.ADOPT, moves=moves, has_partial_readers=is_large
        )

    def _next_partial_scan(
        self,
        leases: Iterable[Lease],
        seen: SeenRows,
        observations: Mapping[str, Observation],
        second: float,
        now: float,
    ) -> PartialScan | None:
        """Return what this worker reads from now on, unless it is a standby."""
        lock = self._leadership.seen
        if lock is None:
            return None
        leader = lock.lock.owner
        alive = [one.worker_id for one in seen.stats if one.is_alive(second)]
        if self._worker_id in standbys(alive, leader):
            return None
        return next_partial_scan(leases, observations, leader, now, self._failover_time)

    def _knows_all(self, now: float) -> bool:
        """Return True if this worker would notice each lease that has expired.

        A worker that has read only its own rows leaves the lead to a standby, which knows at once.
        """
        since = self._whole_since
        return since is None or now - since > self._failover_time

    def _second(self, scan: TableScan) -> float:
        """Return the epoch second of a scan, by the server's clock if that is known."""
        return self._wall_clock_ms() / 1000 if scan.second is None else scan.second


class Leadership:
    """Whether a leader lives, and whether this worker is the leader. For the thread that scans."""

    def __init__(
        self,
        worker_id: str,
        failover_time: float,
        clock: Callable[[], float],
        rng: random.Random,
        publish: Listener,
    ) -> None:
        self._worker_id = worker_id
        self._failover_time = failover_time
        self._clock = clock
        self._rng = rng
        self._publish = publish
        self.seen: SeenLock | None = None
        """The lock as of the last scan that read it; None: there was none."""
        self._has_report = True
        """False if the row of the leader's load is old: the leader ended long ago."""
        self._held: HeldLock | None = None
        """The lock, while this worker leads."""
        self.leads = False
        """True if this worker led when the lock was last used."""

    def observe(self, lock: LeaderLock | None, now: float) -> SeenLock | None:
        """Observe the lock as it was read at ``now``; return what is known of it."""
        self.seen = observe(self.seen, lock, now)
        return self.seen

    def observe_report(self, stats: Iterable[WorkerStats], second: float) -> None:
        """Observe whether the owner of the lock reports its load; ``second``: the scan's."""
        owner = "" if self.seen is None else self.seen.lock.owner
        its = next((one for one in stats if one.worker_id == owner), None)
        self._has_report = its is None or its.is_alive(second)

    def use(
        self, rows: Coordination, lock: LeaderLock | None, now: float, *, may_acquire: bool
    ) -> bool:
        """Send a heartbeat or acquire the lock, if that is due; return True if this worker leads.

        lock: as it was read. may_acquire: False if this worker is not to become the leader now.
        """
        held = self._held
        if held is not None:
            began = self._clock()
            if began - held.since >= _HEARTBEAT_EVERY * self._failover_time:
                # Kept first: a heartbeat without an answer may have been written.
                self._held = held = held.with_heartbeat(self._new_version())
                self._held = held = rows.heartbeat(held, began)
        elif may_acquire and can_acquire(self.seen, now):
            began = self._clock()
            mine = new_lock(self._worker_id, self._failover_time, self._new_version())
            self._held = held = rows.acquire(lock, mine, began)
        self._set(leads=held is not None and held.leads(self._clock()))
        return self.leads

    def resign(self, rows: Coordination | None) -> None:
        """Give up the lock, if this worker holds it."""
        held, self._held = self._held, None
        self._set(leads=False)
        if held is not None:
            assert rows is not None, "it has written the lock"
            rows.release(held)

    def reach(self, leases: Collection[Lease], expired: Collection[str], now: float) -> Reach:
        """Return how far a worker that does not lead goes for leases: farther once nobody leads.

        A leader is dead once all of its leases have expired, or its lock has, or if it has not
        reported its load for a minute. A Java leader's lock takes 120 seconds to expire.
        """
        seen = self.seen
        if seen is None or seen.is_expired(now) or not self._has_report:
            return Reach.TAKE
        its = [row.key for row in leases if row.actual_owner == seen.lock.owner]
        is_dead = bool(its) and all(key in expired for key in its)
        return Reach.TAKE if is_dead else Reach.ADOPT

    def _set(self, *, leads: bool) -> None:
        if leads != self.leads:
            self.leads = leads
            self._publish(LeadershipChanged(self._worker_id, leads))

    def _new_version(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
