"""Leads each lease from its row to this worker: scans the table, decides, and acquires leases."""

# A row's way in one scan (`_take`), each step in an object of its own:
#
#     scan      TableObserver      reads the rows, and observes which owners renew
#     assign    Assignment         says whether a leader assigns leases, and whether it lives
#     decide    plan_takes         which leases this worker adopts, takes or requests
#     take      Acquisitions       writes, and remembers what has no answer yet
#     hold      LeaseRenewer       keeps the HeldLease of each, and renews it
#
# What must hold:
#
# - One thread scans and acquires leases, so none is held after a scan that was not held before it:
#   the leases held before are all whose counters this worker itself may have moved.
# - Liveness is judged by this worker's own clock, from the first scan that showed a counter, with
#   the time after the scan: no lease seems older than it is. Ages are never compared between
#   workers, and no wall clock decides.
# - A write without an answer may have been made. Its lease is remembered (`Acquisitions.asked`)
#   until a consistent scan shows that it is over: a table that names this worker as owner while it
#   does not know so would leave the lease to expire.
# - A worker that ends takes nothing more, even in the middle of many, and withdraws all that it
#   requested and was given (`withdraw_requests`): given later, a lease would be left to expire.

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sparkinesis.errors import LeaseTableNotFoundError
from sparkinesis.events import Listener, ignore
from sparkinesis.lease.acquisitions import Acquisitions, TakeTerms
from sparkinesis.lease.assignment.moves import EACH_TAKES, AssignmentState
from sparkinesis.lease.assignment.partial_scan import PartialScan, PartialScans
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.observer import TableObserver
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.observations import Snapshot, unread_since
from sparkinesis.lease.rules.other_workers import java_kcl_may_read
from sparkinesis.lease.rules.taker import Reach, TakePlan, TakeSettings, plan_takes
from sparkinesis.lease.scan_schedule import ScanSchedule
from sparkinesis.lease.table.fencing import token_at
from sparkinesis.lease.table.provisioning import remember_vanished
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.catalogue import TAKE_DURATION
from sparkinesis.metrics.metrics import OFF, Metrics, timed
from sparkinesis.stream.address import StreamIdentifier, StreamMark

if TYPE_CHECKING:
    from sparkinesis.lease.assignment.assignment import Assignment


class LeaseCoordinator:
    """Acquires and renews the leases of a worker.

    `renew` and `take` are for one thread each; the other methods are for any thread.
    """

    def __init__(
        self,
        table: LeaseTable,
        renewer: LeaseRenewer,
        worker_id: str,
        *,
        settings: TakeSettings,
        clock: Callable[[], float],
        rng: random.Random,
        publish: Listener = ignore,
        metrics: Metrics = OFF,
        several_streams: bool = False,
        join: Callable[[], Assignment] | None = None,
        wants_leader: bool = False,
    ) -> None:
        """``join``: makes the worker's part in assignments, once there is a sign of a leader."""
        self._table = table
        self._renewer = renewer
        self._worker_id = worker_id
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._join = join
        self._wants_leader = wants_leader
        self._assignment: Assignment | None = None
        self._observer = TableObserver(
            table,
            worker_id,
            renewer.own_writes,
            failover_time=settings.failover_time,
            several_streams=several_streams,
            publish=publish,
        )
        self._partial_scans = PartialScans(table, worker_id, clock, is_possible=not several_streams)
        self._schedule = ScanSchedule(
            settings, renewer, worker_id, may_be_alone=not several_streams
        )
        self._acquisitions = Acquisitions(table, renewer, worker_id, clock, publish)
        self.snapshot = Snapshot()
        self.duplicate_worker_leases: tuple[str, ...] = ()
        """Keys of leases that another process renews under this worker's id."""

    def held(self) -> dict[str, HeldLease]:
        """Return the leases that this worker holds, by lease key."""
        return self._renewer.held()

    def unread_shards(self) -> dict[str, float] | None:
        """Return the shards that no live worker reads, and for how many seconds, by lease key.

        By the last scan; None if the table was not scanned within the last failover time.
        """
        oldest = self._clock() - self._settings.failover_time
        return self.snapshot.unread_for(oldest, self._renewer.held())

    def renew(self) -> None:
        """Run one round of renewals; see `LeaseRenewer.renew_all`."""
        self._renewer.renew_all()

    def require_unique_worker_id(self, wait: Callable[[float], object]) -> None:
        """Raise `DuplicateWorkerIdError` if another process renews leases under this worker's id.

        If the table has leases of this worker id, scans it again after the time of a renewal.
        Writes nothing.
        """
        self._observer.require_unique_worker_id(self._clock, wait)

    def due_in(self) -> float:
        """Return the seconds until the next call of `take`; 0 or less: now.

        A lease that was lost or released since the last scan may be for this worker to take again,
        or its shard may have ended, and children follow.
        """
        return self._schedule.next_at() - self._clock()

    def take(
        self,
        busy: Collection[str] = (),
        is_leaving: Callable[[], bool] = lambda: False,
        reads: Callable[[Lease], bool] = lambda _: True,
        wants: Callable[[StreamIdentifier | None], bool] = lambda _: True,
        mark: StreamMark | None = None,
    ) -> bool:
        """Scan the table, and adopt, take or steal leases of the streams that the worker reads.

        ``busy``: keys of leases to leave alone. ``is_leaving``: returns True once the worker is to
        end; no other lease is taken or requested then, even in the middle of many. ``reads``:
        returns True for a lease that this worker may take, as it reads the stream. ``wants``:
        returns True for a stream of the application, which this worker may be unable to read now.
        ``mark``: the only stream of the application.

        Returns True if another scan is worthwhile soon: for a lease without an owner that this
        worker could take, or for a handoff to this worker.
        Raises `LeaseTableError`, `AccessDeniedError` and `LeaseTableUnavailableError`. If the table
        was deleted, raises `LeaseTableNotFoundError`, now and for the rest of the process.
        """
        wish = _Wish(busy, is_leaving, reads, wants, mark)
        take = partial(self._take, wish)
        return timed(take, self._metrics, TAKE_DURATION, (), clock=self._clock)

    def _take(self, wish: _Wish) -> bool:
        began = self._clock()
        is_unsettled = self._take_own(wish, began)
        if is_unsettled is not None:
            return is_unsettled
        scan, held_before = self._scan()
        leases, now = scan.leases, self._clock()
        wanted = [row for row in leases if wish.wants(row.stream)]
        state = self._observe_scan(scan, wanted, held_before, now, wish)
        asked = set(self._acquisitions.asked)
        if state.has_leader:
            asked |= self._observer.given(leases)
        takes = self._plan(leases, now, wish, reach=state.reach, held=held_before, asked=asked)
        assigned = self._acquisitions.assign(state.moves, self.snapshot.expired, wish.is_leaving)
        due = [*takes.adopt, *takes.overdue, *takes.seize, *assigned]
        size = 1
        if not wish.is_leaving() and (due or takes.take):
            size = self._renewer.batching.size([*due, *takes.take])
        terms = self._terms(scan, size, now, wish)
        self._acquisitions.take(wish.free(due), len(due), terms)
        self._acquisitions.take(wish.free(takes.take), takes.need, terms)
        for row in wish.free(takes.steal):
            self._acquisitions.request(row)
        held = self._renewer.held()
        is_unsettled = len(held) < self._settings.max_leases and (
            bool(self._acquisitions.asked)
            or any(
                row.owner is None
                and not row.is_finished
                and row.key not in held
                and wish.reads(row)
                for row in wish.free(leases)
            )
        )
        if is_unsettled:
            self._schedule.after_unsettled_scan(began, held)
        else:
            seen = self._observer.observations
            self._schedule.after_scan(wanted, seen, began, now, held, has_leader=state.has_leader)
        return is_unsettled

    def _scan(self) -> tuple[TableScan, Collection[str]]:
        """Scan the table; return what is there, and the leases held before."""
        held_before, is_consistent = self._renewer.held(), self._acquisitions.is_in_doubt
        try:
            scan = self._observer.scan(consistent=is_consistent)
        except LeaseTableNotFoundError:
            raise remember_vanished(self._table) from None
        held = self._renewer.held()
        for row in scan.leases:
            if row.key in held:
                held[row.key].observe(row)
        self._acquisitions.after_scan(scan.leases, is_consistent=is_consistent)
        return scan, held_before

    def _observe_scan(
        self,
        scan: TableScan,
        wanted: Sequence[Lease],
        held: Collection[str],
        now: float,
        wish: _Wish,
    ) -> AssignmentState:
        """Observe a scan at ``now``; return how the leases are assigned, as far as it shows."""
        expired = self._observer.observe(scan.leases, held, now)
        has_java = java_kcl_may_read(scan, self._worker_id)
        state = EACH_TAKES
        if not wish.is_leaving():
            if self._assignment is None and self._join and (self._wants_leader or has_java):
                self._assignment = self._join()
            if self._assignment is not None:
                # The leases of a stream that has left the application are in the table until they
                # are deleted; a worker that still reads the stream takes them itself
                # (`Reach.ADOPT`).
                state = self._assignment.after_scan(
                    scan,
                    self._observer.observations,
                    expired,
                    now,
                    may_be_partial=not has_java and self._partial_scans.may_be_tried(now),
                    wanted=wanted,
                )
        failover_time = self._settings.failover_time
        unread = unread_since(wanted, self._observer.observations, now, failover_time, held)
        audits = True if state.has_partial_readers else None
        self.snapshot = Snapshot(scan.leases, now, expired, unread, has_java, audits)
        self._partial_scans.next = state.partial
        return state

    def _plan(
        self,
        leases: Iterable[Lease],
        now: float,
        wish: _Wish,
        *,
        reach: Reach,
        held: Collection[str],
        asked: Collection[str],
    ) -> TakePlan:
        """Return what to take after a scan; keep which leases a process of the same id renews.

        The arguments are those of `plan_takes`.
        """
        takes = plan_takes(
            leases,
            self._observer.observations,
            self._worker_id,
            now,
            self._settings,
            rng=self._rng,
            held=held,
            asked=asked,
            busy=wish.busy,
            legacy=self._observer.legacy_workers,
            can_read=wish.reads,
            reach=reach,
        )
        duplicates = {row.key for row in takes.duplicate_worker_leases}
        self.duplicate_worker_leases = tuple(
            sorted(duplicates | self._renewer.duplicate_worker_leases)
        )
        return takes

    def _terms(self, scan: TableScan, size: int, now: float, wish: _Wish) -> TakeTerms:
        """Return what holds for all leases that are taken after a scan at ``now``."""
        origin = partial(self._observer.origin, now, self.snapshot.expired)
        return TakeTerms(size, token_at(scan.second, self._rng), origin, wish.mark)

    def _take_own(self, wish: _Wish, began: float) -> bool | None:
        """Adopt the leases that a leader has given to this worker, by a scan of its own rows.

        Returns what `take` does; None if the whole table is to be read: no leader is known to live,
        or the rows show too little. Raises what `take` does.
        """
        scan = self._partial_scans.pop(began)
        is_sure = not (self._acquisitions.is_in_doubt or self._acquisitions.asked)
        if scan is None or wish.is_leaving() or not is_sure:
            return None
        held_before = self._renewer.held()
        parents = {key: one.lease.parent_keys for key, one in held_before.items()}
        read = self._partial_scans.read(scan, parents, self.snapshot.unfinished)
        now, held = self._clock(), held_before.keys() | self._renewer.held().keys()
        if read is None:
            return None
        keys, rows = read
        self.snapshot = self.snapshot.after(keys, rows.leases)
        if rows.broken or not self._leader_lives(scan, rows, held, now):
            return None
        self._partial_scans.next = scan
        given = self._observer.given(rows.leases)
        takes = self._plan(rows.leases, now, wish, reach=Reach.ADOPT, held=held, asked=given)
        due = [row for row in (*takes.adopt, *takes.overdue) if row.key not in wish.busy]
        if due:
            terms = self._terms(rows, self._renewer.batching.size(due), now, wish)
            self._acquisitions.take(iter(due), len(due), terms)
        mine = self._renewer.held()
        is_coming = any(
            row.owner == self._worker_id and not row.is_finished and row.key not in mine
            for row in rows.leases
        )
        self._schedule.after_partial_scan(began, mine, is_coming=is_coming)
        return is_coming

    def _leader_lives(
        self, scan: PartialScan, rows: TableScan, held: Collection[str], now: float
    ) -> bool:
        """Observe the rows of a partial scan at ``now``; return False if the leader may be dead."""
        self._observer.observe_some(rows.leases, held, now)
        assert self._assignment is not None, "it has planned the partial scan"
        return self._assignment.after_partial_scan(rows, scan, self._observer.observations, now)

    def withdraw_requests(self) -> None:
        """Withdraw this worker's requests for leases that it does not hold yet, before it ends.

        A lease that its owner has not released then stays with the owner. Otherwise the owner would
        release it to a worker that has ended, and it would have to expire. Call this from the
        thread that takes leases, or after that thread has ended. Raises what `take` raises.
        """
        if self.duplicate_worker_leases:
            return  # the other process of this id has these leases, or adopts them
        given: set[str] = set()
        if self._assignment is not None and self._assignment.has_leader:
            # The leader may have assigned leases since the last scan.
            given = {
                row.key
                for row in self._observer.scan(consistent=True).leases
                if row.owner == self._worker_id
                and not row.is_finished
                and not self._observer.is_renewed_by_duplicate(row)
            }
        self._acquisitions.withdraw(given)

    def leave(self) -> None:
        """Leave a leader's assignments: this worker is given no more leases. Raises nothing.

        Call this from the thread that takes leases, after the last one.
        """
        if self._assignment is not None:
            self._assignment.leave()

    def streams_of_others(self) -> set[StreamIdentifier | None]:
        """Return the streams that other workers read, None for a single one. Raises as `take` does.

        A finished lease does not count: it may name an owner that has ended.
        """
        return {
            row.stream
            for row in self._observer.scan(consistent=True).leases
            if row.owner not in {None, self._worker_id} and not row.is_finished
        }

    def are_finished(self, keys: Sequence[str]) -> bool:
        """Return True if the shards of all these lease keys are finished or have no lease.

        Raises what `take` raises.
        """
        rows = map(self._table.get, keys)
        return all(row is None or row.is_finished for row in rows)


class _Wish(msgspec.Struct, frozen=True):
    """What the worker wants of the leases in one scan; see `LeaseCoordinator.take`."""

    busy: Collection[str]
    is_leaving: Callable[[], bool]
    reads: Callable[[Lease], bool]
    wants: Callable[[StreamIdentifier | None], bool]
    mark: StreamMark | None

    def free(self, rows: Iterable[Lease]) -> Iterator[Lease]:
        """Yield the leases that may be taken now, until the worker is to end."""
        for row in rows:
            if self.is_leaving():
                return
            if row.key not in self.busy:
                yield row
