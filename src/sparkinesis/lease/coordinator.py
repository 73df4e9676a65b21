"""The leases of one worker: renews the leases held, and takes, steals and releases others."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparkinesis.errors import (
    AccessDeniedError,
    DuplicateWorkerIdError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    ServiceError,
)
from sparkinesis.events import (
    LegacyWorkerSeen,
    Listener,
    OwnerSilent,
    ignore,
)
from sparkinesis.lease.acquisitions import Acquisitions, OriginOf
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.leading import client_version, leader_lock
from sparkinesis.lease.leading.brief_look import FULL_EVERY, PartialScan, rows_to_read
from sparkinesis.lease.leading.own_rows import keys_of, read_some
from sparkinesis.lease.leading.standing import EACH_TAKES, Standing
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.row_problems import RowProblems
from sparkinesis.lease.rules.fencing import token_at
from sparkinesis.lease.rules.legacy_workers import WorkerVersions, observe_renewals
from sparkinesis.lease.rules.observations import (
    CALM,
    Observation,
    Snapshot,
    between_renewals,
    expired_leases,
    moved_leases,
    observe,
    scan_pause,
    silent_owners,
    unread_since,
)
from sparkinesis.lease.rules.taker import (
    Reach,
    TakePlan,
    TakeSettings,
    origin_of,
    plan_takes,
)
from sparkinesis.lease.rules.worker_ids import java_kcl_may_read
from sparkinesis.lease.table.provisioning import note_vanished
from sparkinesis.lease.table.rows import KnownRows, TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.catalogue import TAKE_DURATION
from sparkinesis.metrics.measured import timed
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamIdentifier, StreamMark

if TYPE_CHECKING:
    from sparkinesis.lease.leading.membership import Membership

_log = logging.getLogger(__name__)


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
        tell: Listener = ignore,
        metrics: Metrics = OFF,
        several_streams: bool = False,
        join: Callable[[], Membership] | None = None,
        wants_leader: bool = False,
    ) -> None:
        """``join``: makes the membership of a fleet with a leader, once there is a sign of one."""
        self._table = table
        self._join = join
        self._wants_leader = wants_leader
        self._membership: Membership | None = None
        self._is_led = False
        self._brief: PartialScan | None = None
        """What the next looks read in place of the whole table."""
        self._may_be_brief_at = -math.inf
        """The time from which on brief looks may be tried (again)."""
        self._several_streams = several_streams
        self._renewer = renewer
        self._worker_id = worker_id
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._tell = tell
        self._metrics = metrics
        self._observations: dict[str, Observation] = {}
        self._worker_versions = WorkerVersions()
        self._silent: frozenset[str] = frozenset()
        """The other workers that own expired leases by the last scan."""
        self._row_problems = RowProblems(str(table), tell)
        self._acquisitions = Acquisitions(
            table, renewer, worker_id, row_problems=self._row_problems, tell=tell
        )
        self._known_rows = KnownRows()
        self._observing_since = math.inf
        """The time of the first scan."""
        self._scanned_at = -math.inf
        """The time at which the last scan began."""
        self._scan_at = -math.inf
        """The time of the next scan, as far as the last one tells."""
        self._held_then: frozenset[str] = frozenset()
        """The keys of the leases that were held after the last scan."""
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
        leases = self._scan(consistent=True).leases
        # Observing starts now, so that a lease that is not renewed can be taken sooner.
        self._observing_since = self._clock()
        self._observations = observe({}, leases, self._observing_since, self._worker_id)
        if all(row.actual_owner != self._worker_id for row in leases):
            return
        wait(self._settings.failover_time / 2)
        if moved := moved_leases(leases, self._scan(consistent=True).leases, self._worker_id):
            raise DuplicateWorkerIdError(
                f"Another live worker has the worker id {self._worker_id!r}: it renews "
                f"{', '.join(moved[:5])} in the {self._table}. Give each worker its own worker_id, "
                "or leave it out to generate one. No lease was taken."
            )

    def due_in(self) -> float:
        """Return the seconds until the next call of `take`; 0 or less: now.

        A lease that was lost or released since the last scan may be for this worker to take again,
        or its shard may have ended, and children follow.
        """
        at = self._scan_at
        if self._renewer.held().keys() != self._held_then:
            at = min(at, self._scanned_at + self._settings.scan_interval)
        return at - self._clock()

    def _scan(self, *, consistent: bool) -> TableScan:
        """Scan the table; log leases that cannot be read, and leave them out."""
        table = self._table.scan(consistent=consistent, read=self._known_rows.read)
        scan = table.several_streams if self._several_streams else table.single_stream
        self._row_problems.report_broken(scan.broken)
        return scan

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
        was deleted, raises `LeaseTableNotFoundError`, and notes that for the rest of the process.
        """
        self._renewer.mark = mark
        take = partial(self._take, busy, is_leaving, reads, wants)
        return timed(take, self._metrics, TAKE_DURATION, (), clock=self._clock)

    def _take(
        self,
        busy: Collection[str],
        is_leaving: Callable[[], bool],
        reads: Callable[[Lease], bool],
        wants: Callable[[StreamIdentifier | None], bool],
    ) -> bool:
        began = self._clock()
        is_unsettled = self._take_own(began, busy, is_leaving, reads)
        if is_unsettled is not None:
            return is_unsettled
        scan, known = self._look()
        leases, now = scan.leases, self._clock()
        wanted = [row for row in leases if wants(row.stream)]
        standing = self._note_scan(scan, wanted, known, now, is_leaving)
        asked = self._acquisitions.asked.keys()
        takes = self._plan(
            leases,
            now,
            reach=standing.reach,
            held=known,
            asked=asked | (self._given(leases) if standing.is_led else set()),
            busy=busy,
            reads=reads,
        )

        def free(rows: Iterable[Lease]) -> Iterator[Lease]:
            for row in rows:
                if is_leaving():
                    return
                if row.key not in busy:
                    yield row

        expired = self.snapshot.expired
        assigned = self._acquisitions.assign(standing.moves, expired, is_leaving)
        due = [*takes.adopt, *takes.overdue, *takes.seize, *assigned]
        size = 1
        if not is_leaving() and (due or takes.take):
            size = self._renewer.batching.size([*due, *takes.take])
        token, origin = token_at(scan.second, self._rng), self._origin(now)
        self._acquisitions.take(free(due), len(due), size, token, origin)
        self._acquisitions.take(free(takes.take), takes.need, size, token, origin)
        for row in free(takes.steal):
            self._acquisitions.request(row)
        mine = self._renewer.held()
        is_unsettled = len(mine) < self._settings.max_leases and (
            bool(self._acquisitions.asked)
            or any(
                row.owner is None and not row.is_finished and row.key not in mine and reads(row)
                for row in free(leases)
            )
        )
        self._plan_scan(wanted, began, now, mine, is_unsettled=is_unsettled)
        return is_unsettled

    def _look(self) -> tuple[TableScan, Collection[str]]:
        """Scan the table; return what is there, and the leases held before.

        This thread alone acquires leases, so that none is held only after the scan.
        """
        held_before, is_consistent = self._renewer.held(), self._acquisitions.is_in_doubt
        try:
            scan = self._scan(consistent=is_consistent)
        except LeaseTableNotFoundError:
            raise note_vanished(self._table) from None
        held = self._renewer.held()
        for row in scan.leases:
            if row.key in held:
                held[row.key].observe(row)
        self._acquisitions.note_scan(scan.leases, is_consistent=is_consistent)
        return scan, held_before

    def _note_scan(
        self,
        scan: TableScan,
        wanted: Sequence[Lease],
        known: Collection[str],
        now: float,
        is_leaving: Callable[[], bool],
    ) -> Standing:
        """Note what a scan tells by ``now``; return this worker's standing in its fleet."""
        leases, failover_time = scan.leases, self._settings.failover_time
        self._observing_since = min(self._observing_since, now)
        own = self._renewer.own_writes
        own.keep({row.key for row in leases})
        self._observations = observe(
            self._observations, leases, now, self._worker_id, known, is_own=own.may_have_made
        )
        expired = expired_leases(self._observations, now, failover_time)
        self._tell_of_others(leases, expired, now)
        has_java = java_kcl_may_read(scan, self._worker_id)
        may_be_brief = not (has_java or self._several_streams) and now >= self._may_be_brief_at
        standing = EACH_TAKES
        if not is_leaving() and (membership := self._member(has_java=has_java)) is not None:
            # The leases of a stream that has left lie there until they are deleted; a worker that
            # reads the stream all the same takes them by itself (`Reach.ADOPT`).
            standing = membership.look(
                scan, self._observations, expired, now, may_be_brief=may_be_brief, wanted=wanted
            )
            self._is_led = standing.is_led
        unread = unread_since(wanted, self._observations, now, failover_time, known)
        leads = True if standing.leads_brief_readers else None
        self.snapshot = Snapshot(leases, now, expired, unread, has_java, leads)
        self._brief = standing.brief
        return standing

    def _plan_scan(
        self,
        leases: Sequence[Lease],
        began: float,
        now: float,
        mine: Collection[str],
        *,
        is_unsettled: bool,
    ) -> None:
        """Note the time of the next scan, after one from ``began`` to ``now``."""
        interval = self._settings.scan_interval
        pause = interval / 3
        if not is_unsettled:
            pause = scan_pause(
                leases,
                self._observations,
                self._worker_id,
                now,
                failover_time=self._settings.failover_time,
                interval=interval,
                held=mine,
                may_be_alone=not self._several_streams,
            )
            # A leader proves three times in a failover time that it is alive.
            pause = min(pause, CALM * interval) if self._is_led else pause
            pause = between_renewals(pause, began, self._renewer.renewed_at, interval)
        self._note_look(began, pause, mine)

    def _note_look(self, began: float, pause: float, mine: Collection[str]) -> None:
        """Note the time of the next look, ``pause`` seconds after one that began at ``began``."""
        self._scanned_at, self._scan_at = began, began + pause
        self._held_then = frozenset(mine)

    def _plan(
        self,
        leases: Iterable[Lease],
        now: float,
        *,
        reach: Reach,
        held: Collection[str],
        asked: Collection[str],
        busy: Collection[str],
        reads: Callable[[Lease], bool],
    ) -> TakePlan:
        """Return what to take after a look; note the leases that a process of the same id has.

        The arguments are those of `plan_takes`; ``reads`` as in `take`.
        """
        takes = plan_takes(
            leases,
            self._observations,
            self._worker_id,
            now,
            self._settings,
            rng=self._rng,
            held=held,
            asked=asked,
            busy=busy,
            legacy=self._worker_versions.legacy,
            can_read=reads,
            reach=reach,
        )
        duplicates = {row.key for row in takes.duplicate_worker_leases}
        self.duplicate_worker_leases = tuple(
            sorted(duplicates | self._renewer.duplicate_worker_leases)
        )
        return takes

    def _take_own(
        self,
        began: float,
        busy: Collection[str],
        is_leaving: Callable[[], bool],
        reads: Callable[[Lease], bool],
    ) -> bool | None:
        """Adopt the leases that a leader has given to this worker, by a look at its own rows.

        Returns what `take` does; None if the whole table is to be read: no leader is known to live,
        or the rows tell too little. Raises what `take` does.
        """
        look, self._brief = self._brief, None
        is_sure = not (self._acquisitions.is_in_doubt or self._acquisitions.asked)
        if look is None or began >= look.until or is_leaving() or not is_sure:
            return None
        held = self._renewer.held()
        rows = self._read_own(look, held)
        now, known = self._clock(), held.keys() | self._renewer.held().keys()
        if rows is None or not self._observe_own(look, rows, now, known):
            return None
        self._brief = look
        takes = self._plan(
            rows.leases,
            now,
            reach=Reach.ADOPT,
            held=known,
            asked=self._given(rows.leases),
            busy=busy,
            reads=reads,
        )
        due = [row for row in (*takes.adopt, *takes.overdue) if row.key not in busy]
        if due:
            size = self._renewer.batching.size(due)
            token = token_at(rows.second, self._rng)
            self._acquisitions.take(iter(due), len(due), size, token, self._origin(now))
        mine = self._renewer.held()
        is_coming = any(
            row.owner == self._worker_id and not row.is_finished and row.key not in mine
            for row in rows.leases
        )
        interval = self._settings.scan_interval
        pause = interval if is_coming else CALM * interval
        pause = between_renewals(pause, began, self._renewer.renewed_at, interval)
        self._note_look(began, pause, mine)
        return is_coming

    def _read_own(self, look: PartialScan, held: Mapping[str, HeldLease]) -> TableScan | None:
        """Read the rows of a brief look; None if that is not possible now."""
        parents = {key: one.lease.parent_keys for key, one in held.items()}
        try:
            owned = keys_of(self._table, self._worker_id)
            keys = rows_to_read(look, owned, parents, self.snapshot.unfinished)
            rows = read_some(self._table, [*keys, leader_lock.KEY, client_version.KEY])
        except LeaseTableUnavailableError:
            raise
        except (AccessDeniedError, LeaseTableNotFoundError, ServiceError) as error:
            # There is no index: not yet, or not for this worker.
            self._may_be_brief_at = self._clock() + FULL_EVERY
            _log.info("The whole lease table is read in place of this worker's rows: %s", error)
            return None
        self.snapshot = self.snapshot.after(keys, rows.leases)
        return None if rows.broken else rows

    def _observe_own(
        self, look: PartialScan, rows: TableScan, now: float, known: Collection[str]
    ) -> bool:
        """Observe the rows of a brief look at ``now``; return False if the leader may be dead."""
        keys = self._observations.keys() & {row.key for row in rows.leases}
        before = {key: self._observations[key] for key in keys}
        is_own = self._renewer.own_writes.may_have_made
        self._observations.update(
            observe(before, rows.leases, now, self._worker_id, known, is_own=is_own)
        )
        assert self._membership is not None, "it has told to look briefly"
        return self._membership.look_briefly(rows, look, self._observations, now)

    def _tell_of_others(
        self, leases: Sequence[Lease], expired: Collection[str], now: float
    ) -> None:
        """Tell which other workers let leases expire, and which know no handoffs; each once."""
        before = self._worker_versions.legacy
        self._worker_versions = observe_renewals(
            self._worker_versions, leases, now, self._settings.failover_time
        )
        for name in sorted(self._worker_versions.legacy - before):
            self._tell(LegacyWorkerSeen(name, str(self._table)))
        silent = silent_owners(leases, expired, self._worker_id)
        for owner in sorted(silent.keys() - self._silent):
            keys = tuple(silent[owner])
            since = min(self._observations[key].since for key in keys)
            self._tell(OwnerSilent(owner, keys, now - since))
        self._silent = frozenset(silent)

    def _origin(self, now: float) -> OriginOf:
        """Return what tells where a lease comes from, by the last look, which was at ``now``."""
        return lambda row, asked: origin_of(
            row,
            self._observations[row.key],
            self._worker_id,
            now,
            asked=asked,
            expired=self.snapshot.expired,
            legacy=self._worker_versions.legacy,
        )

    def _member(self, *, has_java: bool) -> Membership | None:
        """Return this worker's membership of a fleet with a leader; None without a sign of one."""
        if self._membership is None and (self._wants_leader or has_java) and self._join is not None:
            self._membership = self._join()
        return self._membership

    def _given(self, leases: Iterable[Lease]) -> set[str]:
        """Return those that somebody has given to this worker since it observes the table."""
        since, mine = self._observing_since, (self._worker_id, None)
        found = ((row.key, self._observations[row.key]) for row in leases)
        return {key for key, seen in found if seen.owners == mine and seen.owners_since > since}

    def withdraw_requests(self) -> None:
        """Withdraw this worker's requests for leases that it does not hold yet, before it ends.

        A lease that its owner has not released then stays with the owner. Otherwise the owner would
        release it to a worker that has ended, and it would have to expire. Call this from the
        thread that takes leases, or after that thread has ended. Raises what `take` raises.
        """
        if self.duplicate_worker_leases:
            return  # the other process of this id has these leases, or adopts them
        given: set[str] = set()
        if self._is_led:
            # The leader may have assigned leases since the last scan.
            rows = self._scan(consistent=True).leases
            given = {
                row.key
                for row in rows
                if row.owner == self._worker_id
                and not row.is_finished
                and not self._has_moved_by_itself(row)
            }
        self._table.withdraw(
            self._acquisitions.asked.keys() | given, self._worker_id, self._renewer.held
        )

    def _has_moved_by_itself(self, row: Lease) -> bool:
        """Return True if another process with this worker's id seems to renew a lease."""
        seen = self._observations.get(row.key)
        if seen is None or seen.owners != (self._worker_id, None):
            return False
        has_moved = seen.counter != row.counter and not self._renewer.own_writes.may_have_made(row)
        return has_moved or seen.foreign_renewals > 0

    def leave(self) -> None:
        """Leave a fleet with a leader, which then gives this worker no more. Raises nothing.

        Call this from the thread that takes leases, after the last one.
        """
        if self._membership is not None:
            self._membership.leave()

    def streams_of_others(self) -> set[StreamIdentifier | None]:
        """Return the streams that other workers read, None for a single one. Raises as `take` does.

        A finished lease does not count: it may name an owner that has ended.
        """
        return {
            row.stream
            for row in self._scan(consistent=True).leases
            if row.owner not in {None, self._worker_id} and not row.is_finished
        }

    def are_finished(self, keys: Sequence[str]) -> bool:
        """Return True if the shards of all these lease keys are finished or have no lease.

        Raises what `take` raises.
        """
        rows = map(self._table.get, keys)
        return all(row is None or row.is_finished for row in rows)
