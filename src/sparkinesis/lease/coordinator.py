"""The leases of one worker: renews the leases held, and takes, steals and releases others."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import MappingProxyType

from sparkinesis.errors import (
    DuplicateWorkerIdError,
    LeaseTableError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.events import (
    HandoffRequested,
    LeaseOrigin,
    LeaseTaken,
    LegacyWorkerSeen,
    Listener,
    OwnerSilent,
    ignore,
)
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.row_problems import RowProblems
from sparkinesis.lease.rules.legacy_workers import WorkerVersions, observe_renewals
from sparkinesis.lease.rules.observations import Observation, is_expired, observe, unread_since
from sparkinesis.lease.rules.taker import TakeSettings, plan_takes
from sparkinesis.lease.rules.worker_ids import java_kcl_may_read
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batch import BATCH
from sparkinesis.lease.table.provisioning import note_vanished
from sparkinesis.lease.table.rows import KnownRows, TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.metrics.catalogue import TAKE_DURATION
from sparkinesis.metrics.measured import timed
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamIdentifier

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lease table as of one scan."""

    leases: tuple[Lease, ...] = ()
    at: float | None = None
    """The time of the scan, by the worker's clock; None before the first."""
    expired: frozenset[str] = frozenset()
    """Keys of the leases whose owners have not renewed for a failover time."""
    unread: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The time since which no live worker reads a shard, by lease key; see `unread_since`."""
    may_have_java_readers: bool = False
    """True if a Java KCL may share these leases."""


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
    ) -> None:
        self._table = table
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
        self._asked: dict[str, str | None] = {}
        """Leases that this worker has requested or tried to take, but does not hold yet, and their
        previous owners."""
        self._silent: frozenset[str] = frozenset()
        """The other workers that own expired leases by the last scan."""
        self._is_in_doubt = False
        """True if a failed write to one of these leases may have taken effect nevertheless."""
        self._row_problems = RowProblems(str(table), tell)
        self._known_rows = KnownRows()
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
        seen = self.snapshot
        if seen.at is None or self._clock() - seen.at > self._settings.failover_time:
            return None
        mine = self._renewer.held()
        return {key: seen.at - since for key, since in seen.unread.items() if key not in mine}

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
        self._observations = observe({}, leases, self._clock(), self._worker_id)
        before = self._counters(leases)
        if not before:
            return
        wait(self._settings.failover_time / 2)
        after = self._counters(self._scan(consistent=True).leases)
        moved = sorted(key for key, n in after.items() if before.get(key, n) != n)
        if moved:
            raise DuplicateWorkerIdError(
                f"Another live worker has the worker id {self._worker_id!r}: it renews "
                f"{', '.join(moved[:5])} in the {self._table}. Give each worker its own worker_id, "
                "or leave it out to generate one. No lease was taken."
            )

    def _scan(self, *, consistent: bool) -> TableScan:
        """Scan the table; log leases that cannot be read, and leave them out."""
        table = self._table.scan(consistent=consistent, read=self._known_rows.read)
        scan = table.several_streams if self._several_streams else table.single_stream
        self._row_problems.report_broken(scan.broken)
        return scan

    def _scan_known_table(self, *, consistent: bool) -> TableScan:
        """Scan the table, which this process has used; if there is none, note that."""
        try:
            return self._scan(consistent=consistent)
        except LeaseTableNotFoundError:
            raise note_vanished(self._table) from None

    def _counters(self, leases: Iterable[Lease]) -> dict[str, int]:
        return {one.key: one.counter for one in leases if one.actual_owner == self._worker_id}

    def take(
        self,
        busy: Collection[str] = (),
        is_leaving: Callable[[], bool] = lambda: False,
        reads: Callable[[StreamIdentifier | None], bool] = lambda _: True,
        wants: Callable[[StreamIdentifier | None], bool] = lambda _: True,
    ) -> bool:
        """Scan the table, and adopt, take or steal leases of the streams that the worker reads.

        ``busy``: keys of leases to leave alone. ``is_leaving``: returns True once the worker is to
        end; no other lease is taken or requested then, even in the middle of many. ``reads``:
        returns True for a stream whose leases this worker may take. ``wants``: returns True for a
        stream of the application, which this worker may be unable to read now.

        Returns True if another scan is worthwhile soon: for a lease without an owner that this
        worker could take, or for a handoff to this worker.
        Raises `LeaseTableError`, `AccessDeniedError` and `LeaseTableUnavailableError`. If the table
        was deleted, raises `LeaseTableNotFoundError`, and notes that for the rest of the process.
        """
        take = partial(self._take, busy, is_leaving, reads, wants)
        return timed(take, self._metrics, TAKE_DURATION, (), clock=self._clock)

    def _take(
        self,
        busy: Collection[str],
        is_leaving: Callable[[], bool],
        reads: Callable[[StreamIdentifier | None], bool],
        wants: Callable[[StreamIdentifier | None], bool],
    ) -> bool:
        held_before = self._renewer.held()
        is_consistent = self._is_in_doubt
        scan = self._scan_known_table(consistent=is_consistent)
        leases = scan.leases
        self._is_in_doubt = False
        now = self._clock()
        held = self._renewer.held()
        for row in leases:
            if row.key in held:
                held[row.key].observe(row)
        known = {*held_before, *held}
        own_writes = self._renewer.own_writes
        own_writes.keep({row.key for row in leases})
        self._observations = observe(
            self._observations,
            leases,
            now,
            self._worker_id,
            known,
            is_own=own_writes.may_have_made,
        )
        self._observe_worker_versions(leases, now)
        expired = frozenset(
            key
            for key, seen in self._observations.items()
            if is_expired(seen, now, self._settings.failover_time)
        )
        self._tell_silence(leases, expired, now)
        may_have_java_readers = java_kcl_may_read(scan, self._worker_id)
        failover_time = self._settings.failover_time
        wanted = [row for row in leases if wants(row.stream)]
        unread = unread_since(wanted, self._observations, now, failover_time, known)
        self.snapshot = Snapshot(leases, now, expired, unread, may_have_java_readers)
        owners = {row.key: row.owner for row in leases if not row.is_finished}
        # A scan that is not consistent may be older than the request, and show the previous owner.
        self._asked = {
            key: victim
            for key, victim in self._asked.items()
            if key in owners
            and (owners[key] == self._worker_id or (owners[key] == victim and not is_consistent))
        }
        takes = plan_takes(
            leases,
            self._observations,
            self._worker_id,
            now,
            self._settings,
            rng=self._rng,
            held=known,
            asked=self._asked,
            busy=busy,
            legacy=self._worker_versions.legacy,
            can_read=lambda row: reads(row.stream),
        )
        self.duplicate_worker_leases = tuple(
            sorted(
                {row.key for row in takes.duplicate_worker_leases}
                | self._renewer.duplicate_worker_leases
            )
        )

        def free(rows: Iterable[Lease]) -> Iterator[Lease]:
            for row in rows:
                if is_leaving():
                    return
                if row.key not in busy:
                    yield row

        due = [*takes.adopt, *takes.overdue, *takes.seize]
        size = 1
        if not is_leaving() and (due or takes.take):
            size = self._renewer.batching.size([*due, *takes.take][:BATCH])
        self._take_some(free(due), len(due), size)
        self._take_some(free(takes.take), takes.need, size)
        for row in free(takes.steal):
            self._request(row)
        mine = self._renewer.held()
        if len(mine) >= self._settings.max_leases:
            return False
        return bool(self._asked) or any(
            row.owner is None and not row.is_finished and row.key not in mine and reads(row.stream)
            for row in free(leases)
        )

    def _observe_worker_versions(self, leases: Sequence[Lease], now: float) -> None:
        before = self._worker_versions.legacy
        self._worker_versions = observe_renewals(
            self._worker_versions, leases, now, self._settings.failover_time
        )
        for name in sorted(self._worker_versions.legacy - before):
            self._tell(LegacyWorkerSeen(name, str(self._table)))

    def _tell_silence(self, leases: Iterable[Lease], expired: Collection[str], now: float) -> None:
        """Tell which other workers let leases expire, each worker once until it renews again."""
        silent: dict[str, list[Lease]] = defaultdict(list)
        for row in leases:
            owner = row.actual_owner
            if row.key in expired and not row.is_finished and owner not in {None, self._worker_id}:
                silent[str(owner)].append(row)
        for owner, rows in sorted(silent.items()):
            if owner in self._silent:
                continue
            since = min(self._observations[row.key].since for row in rows)
            self._tell(OwnerSilent(owner, tuple(row.key for row in rows), now - since))
        self._silent = frozenset(silent)

    def _take_some(self, rows: Iterator[Lease], need: int, size: int) -> None:
        """Take rows until ``need`` of them are held, at most ``size`` in a call.

        A worker that starts takes a thousand leases while it begins to read those that it has: one
        by one, each would wait for the threads that read.
        """
        while need > 0 and (batch := list(islice(rows, min(need, size)))):
            need -= self._take_batch(batch)

    def _take_batch(self, rows: Sequence[Lease]) -> int:
        """Take these leases; return the number of those that no other worker was faster to take."""
        since = self._clock()
        origins = [self._origin(row, since) for row in rows]
        were_asked = [row.key in self._asked for row in rows]
        for row in rows:
            self._note_request(row)
        updates = [requests.take(row, self._worker_id) for row in rows]
        self._renewer.own_writes.note(updates)
        results = self._renewer.batching.write(updates)
        taken = 0
        trouble: SparkinesisError | None = None
        for row, result, origin, was_asked in zip(rows, results, origins, were_asked, strict=True):
            if isinstance(result, Lease):
                taken += 1
                del self._asked[row.key]
                self._renewer.hold(result, since)
                told = LeaseTaken(row.key, row.shard_id, *origin, str(result.checkpoint))
                self._tell(told)
            else:
                trouble = self._note_failure(row, result, was_asked=was_asked) or trouble
        if trouble is not None:
            raise trouble
        return taken

    def _request(self, row: Lease) -> None:
        """Request a lease. If its row cannot be written, this worker goes on with the others."""
        was_asked = row.key in self._asked
        self._note_request(row)
        result = self._table.try_write(requests.initiate_handoff(row, self._worker_id))
        if isinstance(result, Lease):
            self._tell(HandoffRequested(row.key, row.shard_id, str(row.owner)))
        elif trouble := self._note_failure(row, result, was_asked=was_asked):
            raise trouble

    def _origin(self, row: Lease, now: float) -> tuple[LeaseOrigin, str | None, float | None]:
        """Return where a lease comes from: its previous owner, and for how long that one waited."""
        owner, seen = row.actual_owner, self._observations[row.key]
        if owner is None:
            return LeaseOrigin.UNOWNED, None, None
        if owner == self._worker_id:
            victim = self._asked.get(row.key)
            if victim is None or victim == self._worker_id:
                return LeaseOrigin.OWN, None, None
            return LeaseOrigin.HANDED_OVER, victim, None
        if row.key in self.snapshot.expired:
            return LeaseOrigin.EXPIRED, owner, now - seen.since
        if owner in self._worker_versions.legacy:
            return LeaseOrigin.LEGACY_OWNER, owner, None
        return LeaseOrigin.LATE_HANDOVER, owner, now - seen.owners_since

    def _note_request(self, row: Lease) -> None:
        # Before the write: if the answer is lost, the table may name this worker as owner, and
        # without the note the lease would be left to expire.
        self._asked.setdefault(row.key, row.owner)

    def _note_failure(
        self, row: Lease, error: SparkinesisError, *, was_asked: bool
    ) -> SparkinesisError | None:
        """Note that a row was not written; return the error if it is no matter of this row alone.

        A problem with one row, such as its size, does not keep this worker from the others.
        """
        if isinstance(error, LeaseChangedError):
            if not was_asked:
                del self._asked[row.key]
            _log.debug("The lease %s changed before it could be written", row.key)
            return None
        self._is_in_doubt = True
        if isinstance(error, ServiceError) and not isinstance(error, LeaseTableUnavailableError):
            self._row_problems.report_refusal(row.key, error)
            return None
        return error

    def withdraw_requests(self) -> None:
        """Withdraw this worker's requests for leases that it does not hold yet, before it ends.

        A lease that its owner has not released then stays with the owner. Otherwise the owner would
        release it to a worker that has ended, and it would have to expire. Call this from the
        thread that takes leases, or after that thread has ended. Raises what `take` raises.
        """
        trouble: LeaseTableError | None = None
        for key in list(self._asked):
            try:
                self._withdraw_request(key)
            except LeaseTableError as error:
                trouble = error  # a problem with one row does not keep the others waiting
        if trouble is not None:
            raise trouble

    def _withdraw_request(self, key: str) -> None:
        row = self._table.get(key, consistent=True)
        while row is not None and row.owner == self._worker_id:
            if key in self._renewer.held():
                break
            try:
                if row.checkpoint_owner is None:
                    self._table.write(requests.evict(row))
                else:
                    self._table.write(requests.withdraw_handoff(row))
            except LeaseChangedError as changed:
                row = changed.row
            else:
                break

    def streams_of_others(self) -> set[StreamIdentifier | None]:
        """Return the streams that other workers read, None for a single one. Raises as `take` does.

        A finished lease does not count: it may name an owner that has ended.
        """
        rows = self._scan(consistent=True).leases
        return {
            row.stream
            for row in rows
            if row.owner not in {None, self._worker_id} and not row.is_finished
        }

    def are_finished(self, keys: Sequence[str]) -> bool:
        """Return True if the shards of all these lease keys are finished or have no lease.

        Raises what `take` raises.
        """
        rows = [self._table.get(key, consistent=True) for key in keys]
        return all(row is None or row.is_finished for row in rows)

    def seem_finished(self, keys: Sequence[str]) -> bool:
        """Return the same by the last scan, which may be outdated; `are_finished` confirms it."""
        unfinished = {row.key for row in self.snapshot.leases if not row.is_finished}
        return unfinished.isdisjoint(keys)
