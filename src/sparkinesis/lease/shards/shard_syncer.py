"""Synchronizes a lease table with the shards of a stream: creates, audits and deletes leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.events import LeasesMissing
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import Confidence, audit_needs_them, deletable, find_hole
from sparkinesis.lease.rules.children import early_children
from sparkinesis.lease.rules.shard_sync import leases_for_empty_table, through_reshard
from sparkinesis.lease.shards.creation import IsLeaving, is_never_leaving
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.provisioning import require_not_vanished
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.metrics.catalogue import SHARD_SYNC_DURATION
from sparkinesis.metrics.metrics import OFF, Metrics, timed
from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.shard import Lineage


class ShardSyncSettings(msgspec.Struct, frozen=True):
    """The settings of audits and cleanups, in seconds; see `WorkerOptions` for the defaults."""

    audit_interval: float
    audit_confidence: int
    cleanup_interval: float
    cleanup_leases: bool
    parents_first: bool
    """False: the children of a shard that is still read get leases at the start and each audit."""


_LIST_AGAIN = 60
"""Cleanups from one listing of the shards to the next, while finished leases are still needed."""
_ASK_EVERY = 600.0
"""Seconds in which an audit finds that the application's only stream was made anew. Its readers
mostly meet an error long before."""


class ShardSyncer:
    """Creates, audits and deletes an application's leases of one stream. For one thread.

    Call `sync` once at the start, and `step` from then on.
    """

    def __init__(
        self,
        leases: StreamLeases,
        *,
        settings: ShardSyncSettings,
        clock: Callable[[], float],
        phase: float,
        metrics: Metrics = OFF,
    ) -> None:
        """``phase``: from 0 to 1; puts off the audits and cleanups by this part of their intervals.

        So those of many streams do not come at the same time.
        """
        self._leases = leases
        self._settings = settings
        self._clock = clock
        self._confidence = Confidence()
        self._next_audit = clock() + (1 + phase) * settings.audit_interval
        self._next_cleanup = clock() + (1 + phase) * settings.cleanup_interval
        self._next_listing = float("-inf")
        """The time from which a cleanup lists the shards even if no lease can be deleted yet."""
        self._next_question = clock() + _ASK_EVERY
        """The time from which an audit asks which stream has the name of the only one."""
        self._is_leaving: IsLeaving = is_never_leaving
        self._metrics = metrics

    def sync(
        self,
        own: TableScan | None = None,
        table: TableScan | None = None,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """Create the leases that an application needs to start; workers may do so concurrently.

        table: a consistent scan of the whole table a moment ago; None: scans it. own: its rows of
        this stream. wait: returns True once the worker is to end: those of many leases that are
        left are not created then, here and in `step`.

        A table is read but not written if its leases cover all hash keys, or if some of its leases
        are unreadable; the next scan publishes those.

        Raises service errors, `InconsistentShardsError` if the listed shards overlap or leave
        gaps, `LeaseTableError` if rows are of another stream, and `LeaseTableNotFoundError` if the
        table is empty, after it was deleted while this process used it.
        """
        if wait is not None:
            self._is_leaving = partial(wait, 0)
        whole = table or self._leases.table.scan(consistent=True)
        rows = own or whole.of(self._leases.stream)
        self._leases.remember(rows.leases)
        self._measure(lambda: through_reshard(lambda: self._sync(rows, whole), self._leases.wait))

    @property
    def mark(self) -> StreamMark | None:
        """The application's only stream, as it was last; None: there are several."""
        return self._leases.mark

    def settle(self) -> None:
        """Make the rows of a former stream anew, if the stream was; see `StreamLeases.own_rows`."""
        self._leases.own_rows(self._leases.scan_table())

    def _measure(self, run: Callable[[], None]) -> None:
        labels = (self._leases.client.address.name,)
        timed(run, self._metrics, SHARD_SYNC_DURATION, labels, clock=self._clock)

    def _sync(self, scan: TableScan, table: TableScan) -> None:
        if self._leases.stream is None and scan.leases:
            scan = self._leases.own_rows(scan)
        if not scan.leases and not scan.broken:
            self._begin(table)
        else:
            self._complete(scan)
        if not self._settings.parents_first:
            self._create_early_children()

    def _complete(self, scan: TableScan) -> None:
        """Create the missing leases of an application that has some."""
        if find_hole(scan.leases) is not None and not scan.broken:
            # An unreadable lease does not show its shard, so the missing leases are unknown.
            self._leases.fill_holes(self._is_leaving)

    def _begin(self, table: TableScan) -> None:
        """Create the leases of a new application, or of a new stream.

        Of workers that start at the same time, the one that creates the first lease determines
        when the application began. The others then create the leases that are missing.

        They may list other shards, if the stream was resharded between their listings. Then the
        first lease of one does not stop the other, whose leases would begin with a later LATEST,
        and the records before it would be skipped.
        """
        require_not_vanished(self._leases.table)
        first = self._leases.first
        shards, now_ms = self._leases.list_shards(at=first)
        self._leases.confirm()
        leases = leases_for_empty_table(shards, first, now_ms, self._leases.began_ms)
        # At TRIM_HORIZON no record is skipped, whoever begins first.
        if first is not TRIM_HORIZON and any(shard.parents for shard in shards):
            there = self._leases.scan_table()
            if there.leases or there.broken:
                self._complete(there)
                return
        created = self._leases.create(leases[:1], table, self._is_leaving)
        if created:
            created += self._leases.create(leases[1:], table, self._is_leaving)
        if created == len(leases):
            return
        there = self._leases.scan()
        # Another application may have made the others.
        if self._leases.stream is None and not all(map(self._leases.is_own, there.leases)):
            there = self._leases.own_rows(there)
        if not created and find_hole(self._leases.table.sound(there)) is not None:
            self._leases.fill_holes(self._is_leaving)

    def _create_early_children(self) -> None:
        """Create the leases of shards whose parents are still to be read."""
        begin, shards = self._leases.start(self._leases.read())
        missing = early_children(self._leases.read(), shards, begin)
        self._leases.create(missing, is_leaving=self._is_leaving)

    def step(self, leases: Sequence[Lease], *, audits: bool) -> float:
        """Audit and clean up when due, if this worker is the auditor by the last scan of the table.

        ``leases``: those of the stream by that scan.

        Returns the seconds until the next audit or cleanup. Raises service errors.
        """
        try:
            return self._step(leases, audits=audits)
        except InconsistentShardsError as error:
            if self._leases.stream is None:
                raise
            # The rules know shards only, and those of all streams have the same ids.
            raise InconsistentShardsError(f"Stream {self._leases.stream}: {error}") from None

    def _step(self, leases: Sequence[Lease], *, audits: bool) -> float:
        now = self._clock()
        self._leases.remember(leases)
        if now >= self._next_audit:
            self._next_audit = now + self._settings.audit_interval
            if audits and leases:
                self._measure(lambda: self._audit(leases))
            elif not leases:
                self.sync()  # All rows were deleted, apparently by hand.
        if now >= self._next_cleanup:
            self._next_cleanup = now + self._settings.cleanup_interval
            if audits and self._settings.cleanup_leases:
                self._measure(lambda: self._clean_up(leases))
        return max(0.0, min(self._next_audit, self._next_cleanup) - self._clock())

    def _audit(self, leases: Sequence[Lease]) -> None:
        now = self._clock()
        if self._leases.stream is None and now >= self._next_question:
            self._next_question = now + _ASK_EVERY
            leases = self._leases.own_rows(TableScan(tuple(leases))).leases
        if not self._settings.parents_first:
            self._create_early_children()
        hole = find_hole(leases)
        self._confidence = self._confidence.after(hole)
        if self._confidence.audits < self._settings.audit_confidence:
            return
        stream = None if self._leases.stream is None else str(self._leases.stream)
        self._leases.publish(LeasesMissing(str(self._leases.table), stream, str(hole)))
        self._confidence = Confidence()
        self._leases.fill_holes(self._is_leaving)

    def _clean_up(self, leases: Sequence[Lease]) -> None:
        finished = [lease for lease in leases if lease.is_finished]
        now = self._clock()
        if not finished or (
            # Only the listing shows that a shard has expired, which takes a day or more.
            now < self._next_listing
            and all(lease.child_ids for lease in finished)
            and not deletable(leases, None)
        ):
            return
        self._next_listing = now + _LIST_AGAIN * self._settings.cleanup_interval
        shards, _ = self._leases.list_shards()
        lineage = Lineage.of(shards)
        for lease in leases:
            children = lineage.children(lease.shard_id)
            if lease.is_finished and not lease.child_ids and children:
                self._leases.table.write(requests.add_children(lease, children))
        if not deletable(leases, shards):
            return
        remaining = self._leases.read()
        if audit_needs_them(remaining):
            self._next_listing = now  # the audit follows, and the cleanup after that
            return
        for lease in deletable(remaining, shards):
            self._leases.delete(lease)
