"""The rows by which workers with a leader coordinate themselves, and where they are kept.

A KCL 3.5 keeps them among the leases, as this library does. A KCL 3.0 to 3.4 has two tables beside
the lease table, named for the application, which a KCL 3.5 uses until it has moved their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import AccessDeniedError, LeaseTableError, LeaseTableNotFoundError
from sparkinesis.lease.assignment.coordinator_state import (
    INIT,
    LOCK_KEY,
    VERSION_2X,
    VERSION_KEY,
    HeldLock,
    LeaderLock,
    Sharing,
    VersionRow,
    acquire_expects,
    decode_lock,
    decode_version,
    encode_lock,
    encode_version,
    heartbeat,
    missing_row,
    owner_expects,
    sharing_of,
)
from sparkinesis.lease.assignment.worker_stats import (
    SINGLE_TABLE,
    WorkerStats,
    decode_stats,
    encode_stats,
    newest,
)
from sparkinesis.lease.table.calls import RowTable
from sparkinesis.lease.table.table import LeaseTable

_FIND_EVERY = 60.0
"""Seconds between two questions where the rows are, as in a KCL 3.x."""
_MIGRATION = "TableMigration3.5"
_COMPLETE = {"S": "TABLE_MIGRATION_STATUS_COMPLETE"}


class SeenRows(msgspec.Struct, frozen=True):
    """The rows of coordination that a scan of the lease table returned."""

    stats: tuple[WorkerStats, ...] = ()
    lock: LeaderLock | None = None
    version: VersionRow | None = None


def seen_in(items: Iterable[Mapping[str, Any]]) -> SeenRows:
    """Read the rows of coordination of a scan (``TableScan.coordination``). Pure."""
    stats: list[WorkerStats] = []
    lock: LeaderLock | None = None
    version: VersionRow | None = None
    for item in items:
        if (one := decode_stats(item)) is not None:
            stats.append(one)
        else:
            lock = lock or decode_lock(item)
            version = version or decode_version(item)
    return SeenRows(tuple(stats), lock, version)


@dataclass(frozen=True, slots=True)
class Coordination:
    """The calls on the rows of coordination of an application.

    Safe to share between threads. All calls raise what `LeaseTable` does. Writes raise
    `LeaseTableError` unless ``can_write``.
    """

    table: LeaseTable
    states: RowTable
    """The table with the leader's lock and the application's version."""
    workers: RowTable
    """The table with the stats of workers."""
    may_share_table: bool = False
    """True if rows that are no leases may be written into the lease table. A KCL before 3.5 fails
    at each scan of a table with such rows."""

    @classmethod
    def find(
        cls, table: LeaseTable, application: str = "", *, may_share_table: bool = False
    ) -> Coordination:
        """Find the rows of an application, by one call; default: it is named as its lease table.

        Another worker may create or leave the tables beside the lease table at any time.
        """
        application = application or table.name
        states = _rows_of(table, f"{application}-CoordinatorState", "key")
        try:
            migration = states.get(_MIGRATION)
        except LeaseTableNotFoundError:
            is_beside = False
        else:
            is_beside = migration is None or migration.get("tm") != _COMPLETE
        if is_beside:
            workers = _rows_of(table, f"{application}-WorkerMetricStats", "wid")
            return cls(table, states, workers, may_share_table)
        return cls.among_leases(table, may_share_table=may_share_table)

    @classmethod
    def among_leases(cls, table: LeaseTable, *, may_share_table: bool = False) -> Coordination:
        """Return the rows in the lease table itself, without a call."""
        rows = _rows_of(table, table.name, "leaseKey")
        return cls(table, rows, rows, may_share_table)

    @property
    def is_beside(self) -> bool:
        """True if the rows are in tables beside the lease table."""
        return self.states.is_beside

    @property
    def can_write(self) -> bool:
        """True if this worker may write the rows."""
        return self.is_beside or self.may_share_table

    def version(self) -> VersionRow | None:
        """Return the version of the application; None if nobody has set it."""
        for rows in self._places(self.states):
            item = rows.get(VERSION_KEY)
            if item is not None:
                return decode_version(item, rows.key)
        return None

    def create_version(self, row: VersionRow) -> VersionRow:
        """Set the version, if nobody has; return the row that is there then."""
        known = self.version()
        if known is None:
            self._require_permission()
            self.states.put(VERSION_KEY, encode_version(row), None)
            known = self.version()
        return known or row

    def stats(self, seen: SeenRows) -> dict[str, WorkerStats]:
        """Return the newest row of each worker, by its id; ``seen``: a scan of the lease table.

        Makes no call if the rows are in the lease table. While a KCL 3.5 moves them, they may be in
        either place.
        """
        stats = list(seen.stats)
        if self.is_beside:
            rows = (decode_stats(item, self.workers.key) for item in self.workers.rows())
            stats += [one for one in rows if one is not None]
        return newest(stats)

    def write_stats(self, stats: WorkerStats) -> None:
        """Write this worker's row.

        The support code shows a KCL 3.5 that its workers may begin to move the rows into the lease
        table. A worker of this library follows once they have, and so cannot be waited for.
        """
        self._require_permission()
        code, second = (None, None) if self.is_beside else (SINGLE_TABLE, stats.updated_s)
        stats = replace(stats, support_code=code, support_updated_s=second)
        self.workers.update(stats.worker_id, encode_stats(stats))

    def delete_stats(self, stats: WorkerStats) -> bool:
        """Delete a worker's row as it was read or written; return False if it has changed."""
        self._require_permission()
        expected = {"lut": {"N": str(stats.updated_s)}}
        places = self._places(self.workers)
        return any(rows.delete(stats.worker_id, expected) for rows in places)

    def delete_stale(self, stats: Iterable[WorkerStats], now_s: float) -> None:
        """Delete the rows of workers that ended a day ago; the leader does.

        A worker that was killed has left its row, and a new one of the same machine has another id.
        """
        for one in stats:
            if one.is_stale(now_s):
                self.delete_stats(one)

    def lock(self) -> LeaderLock | None:
        """Return the leader's lock; None if there is none.

        Raises `LeaseTableError` if the row cannot be read: nobody could ever become the leader.
        """
        item = self.states.get(LOCK_KEY)
        if item is None:
            return None
        lock = decode_lock(item, self.states.key)
        if lock is None:
            raise LeaseTableError(
                f"The row {LOCK_KEY!r} in the {self.states} is no lock of a leader. Delete "
                "the row: a worker then becomes the leader."
            )
        return lock

    def acquire(self, known: LeaderLock | None, lock: LeaderLock, now: float) -> HeldLock | None:
        """Become the leader; None if another worker was faster.

        known: the lock that has expired or was released; None: there was none. now: the time before
        this call, by this worker's clock.
        """
        self._require_permission()
        expected = acquire_expects(known)
        if self.states.put(LOCK_KEY, encode_lock(lock), expected):
            return HeldLock(lock, now)
        # The write of an earlier try, whose answer was lost, refuses the next one.
        is_mine = self.lock() == lock
        return HeldLock(lock, now) if is_mine else None

    def heartbeat(self, held: HeldLock, now: float) -> HeldLock | None:
        """Remain the leader; None if another worker, or process of the same id, has taken the lock.

        held: see `HeldLock.with_heartbeat`. now: the time before this call, by this worker's clock.
        """
        self._require_permission()
        version = held.unanswered[-1]
        lock = replace(held.lock, version=version)
        for before in (held.lock, None, None):
            known = before or self.lock()
            if known is None or not held.wrote(known):
                return None
            if known.version == version or self.states.update(
                LOCK_KEY,
                heartbeat(known, version),
                owner_expects(known),
            ):
                return HeldLock(lock, now)
            # An earlier heartbeat, of which this worker has no answer, may have been written.
        return None

    def release(self, held: HeldLock) -> None:
        """Stop being the leader: delete the lock, as Java does, unless another worker has it."""
        self._require_permission()
        known: LeaderLock | None = held.lock
        while known is not None and held.wrote(known):
            if self.states.delete(LOCK_KEY, owner_expects(known)):
                return
            known = self.lock()

    def _places(self, rows: RowTable) -> tuple[RowTable, ...]:
        """Return the tables in which a row may be: a KCL 3.5 may be moving it to the leases."""
        if not self.is_beside:
            return (rows,)
        return rows, _rows_of(self.table, self.table.name, "leaseKey")

    def _require_permission(self) -> None:
        if not self.can_write:
            raise LeaseTableError(
                f"A row that is no lease may not be written into the {self.table}: a KCL before "
                "3.5 may read it, and fails at such rows. Nothing was written."
            )


class CurrentRows:
    """The rows of an application where they are now, and its version. For one thread.

    Another worker may create the tables beside the lease table, or leave them, at any time.
    """

    def __init__(
        self,
        table: LeaseTable,
        application: str,
        worker_id: str,
        wall_clock_ms: Callable[[], int],
        *,
        wants_leader: bool,
    ) -> None:
        """``wants_leader``: the application asks for a leader by its options."""
        self._table = table
        self._application = application
        self._worker_id = worker_id
        self._wall_clock_ms = wall_clock_ms
        self._wants_leader = wants_leader
        self.place: Coordination | None = None
        """Where the rows are; None before the first question."""
        self._found_at: float | None = None
        self._version: VersionRow | None = None

    @property
    def has_leader(self) -> bool:
        """True if a leader assigns the leases, by the version as last read."""
        return sharing_of(self._version) is Sharing.ASSIGNED

    @property
    def take_reports(self) -> bool:
        """True if workers report their loads: with a leader, or before there is one."""
        return self._version is not None and self._version.now.name not in {INIT, VERSION_2X}

    def find(self, seen: SeenRows, now: float) -> Coordination:
        """Return where the rows are, and read the version; create it if it is wanted and missing.

        ``seen``: by the scan at ``now``. Raises what `LeaseTable` does.
        """
        place = self.place
        if place is None or self._found_at is None or now - self._found_at >= _FIND_EVERY:
            self.place = place = self._find(seen)
            self._version = place.version() if place.is_beside else seen.version
            self._found_at = now
        elif seen.version is not None:
            self._version = seen.version
        missing = missing_row(
            self._version, self._worker_id, self._wall_clock_ms(), by_load=self._wants_leader
        )
        if missing is not None:
            self._version = place.create_version(missing)
        return place

    def _find(self, seen: SeenRows) -> Coordination:
        # A row among the leases says that no worker of the application is older than a KCL 3.5.
        may_share = self._wants_leader or seen.version is not None
        try:
            return Coordination.find(self._table, self._application, may_share_table=may_share)
        except AccessDeniedError:
            # An application that wants no leader, beside workers of any kind, needs no permission
            # for tables of a KCL 3.0 until there are such tables.
            if self._wants_leader:
                raise
            return Coordination.among_leases(self._table, may_share_table=may_share)


def _rows_of(table: LeaseTable, name: str, key: str) -> RowTable:
    """Return the calls on a table that is reached as the lease table is."""
    return RowTable(
        name,
        table.region,
        table.endpoint,
        table.credentials,
        retry=table.retry,
        metrics=table.metrics,
        key=key,
        is_beside=name != table.name,
    )
