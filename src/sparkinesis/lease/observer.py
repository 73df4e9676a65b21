"""Scans the lease table, and keeps what a worker has observed of its rows and of other workers."""

# A row that names this worker, which does not hold the lease, is ambiguous. The lease was given to
# it by a handoff or by a leader; or a process of the same id has left it and has ended, as before a
# restart; or such a process lives, and two workers would read the shard.
#
# - What this worker asked for, or was given since it observes the table (`given`), it adopts at
#   once.
# - All other such leases wait for the time of two renewals (`taker.plan_takes`). While one waits,
#   no other lease is taken: that could set two workers against each other.
# - A counter that moves again meanwhile, by a write that this worker has not sent, ends the worker
#   with `DuplicateWorkerIdError`. One move proves nothing: it may be the write that gave the lease.
#
# A worker's own late writes looked like those of another process: where the table answers late,
# renewals and takes have effect after their calls have failed, and workers that were alone ended
# themselves. At first, a move within two failover times of a write of one's own proved nothing;
# now `OwnWrites` has the highest counter that was tried, and a higher one is another's.

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sparkinesis.errors import DuplicateWorkerIdError
from sparkinesis.events import (
    LeaseReadable,
    LeaseUnreadable,
    LegacyWorkerSeen,
    Listener,
    OwnerSilent,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import (
    Observation,
    expired_leases,
    moved_leases,
    observe,
    silent_owners,
)
from sparkinesis.lease.rules.other_workers import WorkerVersions, observe_renewals
from sparkinesis.lease.rules.taker import Origin, origin_of
from sparkinesis.lease.table.rows import BrokenLease, KnownRows, TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import OwnWrites


class TableObserver:
    """What a worker knows of the lease table by its scans. For the thread that takes leases.

    ``failover_time`` is in seconds. several_streams: the application reads several streams.
    """

    def __init__(
        self,
        table: LeaseTable,
        worker_id: str,
        own_writes: OwnWrites,
        *,
        failover_time: float,
        several_streams: bool,
        publish: Listener,
    ) -> None:
        self._table = table
        self._worker_id = worker_id
        self._own_writes = own_writes
        self._failover_time = failover_time
        self._several_streams = several_streams
        self._publish = publish
        self._rows = KnownRows()
        self._broken: dict[str, str] = {}
        """Why rows cannot be read, as published last, by lease key."""
        self._since = math.inf
        """The time of the first scan."""
        self.observations: dict[str, Observation] = {}
        """By lease key, as of the last scan that read the row."""
        self._versions = WorkerVersions()
        self._silent: frozenset[str] = frozenset()
        """The other workers that own expired leases by the last scan."""

    @property
    def legacy_workers(self) -> frozenset[str]:
        """The workers that do not support handoffs."""
        return self._versions.legacy

    def scan(self, *, consistent: bool) -> TableScan:
        """Scan the table; publish the leases that cannot be read, and leave them out."""
        table = self._table.scan(consistent=consistent, read=self._rows.read)
        scan = table.several_streams if self._several_streams else table.single_stream
        self._publish_broken(scan.broken)
        return scan

    def require_unique_worker_id(
        self, now: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        """Raise `DuplicateWorkerIdError` if another process renews leases under this worker's id.

        If the table has leases of this worker id, scans it again after the time of a renewal.
        Writes nothing. ``now``: the clock.
        """
        leases = self.scan(consistent=True).leases
        # Observing starts now, so that a lease that is not renewed can be taken sooner.
        self._since = now()
        self.observations = observe({}, leases, self._since, self._worker_id)
        if all(row.actual_owner != self._worker_id for row in leases):
            return
        wait(self._failover_time / 2)
        if moved := moved_leases(leases, self.scan(consistent=True).leases, self._worker_id):
            raise DuplicateWorkerIdError(
                f"Another live worker has the worker id {self._worker_id!r}: it renews "
                f"{', '.join(moved[:5])} in the {self._table}. Give each worker its own worker_id, "
                "or leave it out to generate one. No lease was taken."
            )

    def observe(self, leases: Sequence[Lease], held: Collection[str], now: float) -> frozenset[str]:
        """Observe a scan of the whole table, at ``now``; return the keys of the expired leases.

        held: the keys of all leases that this worker held before the scan or holds after it.
        """
        self._since = min(self._since, now)
        self._own_writes.keep({row.key for row in leases})
        self.observations = self._observed(self.observations, leases, held, now)
        expired = expired_leases(self.observations, now, self._failover_time)
        self._publish_others(leases, expired, now)
        return expired

    def observe_some(self, leases: Sequence[Lease], held: Collection[str], now: float) -> None:
        """Observe some rows that were read at ``now``; what is known of the others stays."""
        keys = self.observations.keys() & {row.key for row in leases}
        before = {key: self.observations[key] for key in keys}
        self.observations.update(self._observed(before, leases, held, now))

    def _observed(
        self,
        before: dict[str, Observation],
        leases: Iterable[Lease],
        held: Collection[str],
        now: float,
    ) -> dict[str, Observation]:
        is_own = self._own_writes.may_have_made
        return observe(before, leases, now, self._worker_id, held, is_own=is_own)

    def given(self, leases: Iterable[Lease]) -> set[str]:
        """Return the keys of those that were given to this worker since it observes the table."""
        since, mine = self._since, (self._worker_id, None)
        found = ((row.key, self.observations[row.key]) for row in leases)
        return {key for key, seen in found if seen.owners == mine and seen.owners_since > since}

    def origin(
        self, now: float, expired: Collection[str], row: Lease, asked: Mapping[str, str | None]
    ) -> Origin:
        """Return where a lease comes from, by the scan at ``now``; see `origin_of`."""
        return origin_of(
            row,
            self.observations[row.key],
            self._worker_id,
            now,
            asked=asked,
            expired=expired,
            legacy=self._versions.legacy,
        )

    def is_renewed_by_duplicate(self, row: Lease) -> bool:
        """Return True if another process with this worker's id seems to renew a lease."""
        seen = self.observations.get(row.key)
        if seen is None or seen.owners != (self._worker_id, None):
            return False
        has_moved = seen.counter != row.counter and not self._own_writes.may_have_made(row)
        return has_moved or seen.foreign_renewals > 0

    def _publish_broken(self, rows: Iterable[BrokenLease]) -> None:
        """Publish rows that cannot be read, and rows that are readable again; each once."""
        found = {row.key: row.why for row in rows}
        for key, why in found.items():
            if self._broken.get(key) != why:
                self._publish(LeaseUnreadable(key, str(self._table), why))
        for key in self._broken.keys() - found.keys():
            self._publish(LeaseReadable(key, str(self._table)))
        self._broken = found

    def _publish_others(
        self, leases: Sequence[Lease], expired: Collection[str], now: float
    ) -> None:
        """Publish which workers let leases expire, and which know no handoffs; each once."""
        before = self._versions.legacy
        self._versions = observe_renewals(self._versions, leases, now, self._failover_time)
        for name in sorted(self._versions.legacy - before):
            self._publish(LegacyWorkerSeen(name, str(self._table)))
        silent = silent_owners(leases, expired, self._worker_id)
        for owner in sorted(silent.keys() - self._silent):
            keys = tuple(silent[owner])
            since = min(self.observations[key].since for key in keys)
            self._publish(OwnerSilent(owner, keys, now - since))
        self._silent = frozenset(silent)
