"""Synchronizes a lease table with the shards of a stream: creates, audits and deletes leases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.events import (
    ChildrenUnlisted,
    ChildrenWaiting,
    LeaseCreated,
    LeaseDeleted,
    LeasesMissing,
    Listener,
    ParentsLost,
    ignore,
)
from sparkinesis.lease.checkpoint_search import checkpoint_at
from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.rules.audit import Confidence, find_hole, missing_hash_ranges
from sparkinesis.lease.rules.children import (
    UNSEEN,
    ShardEnd,
    early_children,
    orphaned_children,
    plan_children,
)
from sparkinesis.lease.rules.cleanup import audit_needs_them, deletable
from sparkinesis.lease.rules.lease_start import (
    LeaseStart,
    application_start_ms,
    last_known_position,
    lease_start,
)
from sparkinesis.lease.rules.shard_sync import (
    expired_unread,
    leases_for_empty_table,
    leases_for_partial_table,
    through_reshard,
)
from sparkinesis.lease.rules.worker_ids import java_kcl_may_read
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.provisioning import require_not_vanished
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.stream_leases import StreamLeases
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.catalogue import SHARD_SYNC_DURATION
from sparkinesis.metrics.measured import measured
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.shared_calls import ShardListing
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.reading.retention import SHORTEST_RETENTION_MS, RetentionCheck
from sparkinesis.stream.shard import Lineage, Shard

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardSyncSettings:
    """The settings of audits and cleanups, in seconds; see `WorkerOptions` for the defaults."""

    audit_interval: float
    audit_confidence: int
    cleanup_interval: float
    cleanup_leases: bool
    parents_first: bool = True
    """False: the children of a shard that is still read get leases at the start and each audit."""


_LIST_AGAIN = 60
"""Cleanups from one listing of the shards to the next, while finished leases are still needed."""
_FRESH = 2.0
"""A listing made up to this many seconds before the end was seen may already show it."""
_ASK_AGAIN = (1.0, 30.0)
"""Seconds between ListShards calls for a shard's children: the first pause, and the longest."""
_WARN_AFTER = 60.0
"""Seconds without children in ListShards after which a warning is logged."""


@dataclass(frozen=True, slots=True)
class _Unlisted:
    """A shard that has ended but whose children are not known yet."""

    since: float
    """The time at which its end was seen."""
    due: float
    """The time of the oldest listing that may show the children."""
    pause: float = _ASK_AGAIN[0]
    """Seconds from that listing to the next."""


class JavaNote:
    """A note in the log for operators of Java workers, once for all streams of an application."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_logged = False

    def log(self, table: LeaseTable) -> None:
        with self._lock:
            if self._is_logged:
                return
            self._is_logged = True
        _log.info(
            "The leases of the %s start at an instant (AT_TIMESTAMP). A Java KCL that shares "
            "the table before each shard has a checkpoint must be configured to start at the "
            "same instant. Or use `sparkinesis reset`, which stores no instants.",
            table,
        )


class ShardSyncer:
    """Creates, audits and deletes an application's leases of one stream.

    Call `sync` once at the start, `step` from one thread, and `create_child_leases` from any
    thread. ``stream``: one of several streams of the application; None: it reads only this one.
    """

    def __init__(
        self,
        client: StreamClient,
        table: LeaseTable,
        worker_id: str,
        *,
        initial: InitialPosition,
        settings: ShardSyncSettings,
        clock: Callable[[], float],
        wait: Callable[[float], object],
        stream: StreamIdentifier | None = None,
        phase: float = 0.0,
        table_size: Callable[[], int] = lambda: 0,
        java_note: JavaNote | None = None,
        metrics: Metrics = OFF,
        tell: Listener = ignore,
    ) -> None:
        """``java_note``: shared by the streams of an application.

        phase: from 0 to 1; puts off the audits and cleanups by this part of their intervals, so
        that those of many streams do not come at the same time.
        table_size: returns about how many rows the table has.
        """
        self._stream = stream
        self._client = client
        self._table = table
        self._worker_id = worker_id
        self._initial = initial
        self._settings = settings
        self._clock = clock
        self._wait = wait
        self._confidence = Confidence()
        self._waits: dict[str, tuple[float, tuple[str, ...]]] = {}
        """Each ended shard: time of the last full check, and the leases that its children need."""
        self._listing = ShardListing(client, clock)
        self._unlisted: dict[str, _Unlisted] = {}
        """The ended shards whose children are not known yet, by lease key."""
        self._java_note = java_note or JavaNote()
        self._leases = StreamLeases(table, stream, table_size)
        self._next_audit = clock() + (1 + phase) * settings.audit_interval
        self._next_cleanup = clock() + (1 + phase) * settings.cleanup_interval
        self._next_listing = float("-inf")
        """The time from which a cleanup lists the shards even if no lease can be deleted yet."""
        self._metrics = metrics
        self._tell = tell

    def sync(self, own: TableScan | None = None, table: TableScan | None = None) -> None:
        """Create the leases that an application needs to start; workers may do so concurrently.

        table: a consistent scan of the whole table a moment ago; None: scans it. own: its rows of
        this stream.

        A table is read but not written if its leases cover all hash keys, or if some of its leases
        are unreadable; `RowProblems` tells those.

        Raises service errors, `InconsistentShardsError` if the listed shards overlap or leave
        gaps, and `LeaseTableNotFoundError` if the table is empty, after it was deleted while this
        process used it.
        """
        whole = table or self._table.scan(consistent=True)
        rows = own or whole.of(self._stream)
        self._leases.know(rows.leases)
        self._measure(lambda: through_reshard(lambda: self._sync(rows, whole), self._wait))

    def _measure(self, run: Callable[[], None]) -> None:
        if self._metrics is OFF:
            run()
        else:
            measured(run, self._clock, self._observe)()

    def _observe(self, result: str, seconds: float) -> None:
        self._metrics.observe(SHARD_SYNC_DURATION, (self._client.address.name, result), seconds)

    def _sync(self, scan: TableScan, table: TableScan) -> None:
        if self._stream is None:  # otherwise, the identifier tells such streams apart
            self._check_for_recreated_stream(scan.leases)
        if not scan.leases and not scan.broken:
            self._begin(table)
        else:
            self._complete(scan)
        if not self._settings.parents_first:
            self._create_early_children()

    def _complete(self, scan: TableScan) -> None:
        """Create the missing leases of an application that has some."""
        if find_hole(scan.leases) is not None and not scan.broken:
            # An unreadable lease does not tell its shard, so the missing leases are unknown.
            self._fill_holes()

    def _check_for_recreated_stream(self, leases: Iterable[Lease]) -> None:
        """Log a warning about leases of a deleted stream of the same name."""
        by_shard = {one.shard_id: one for one in leases}
        positions = {
            key: at for key, one in by_shard.items() if (at := last_known_position(one)) is not None
        }
        if not positions:
            return
        check = RetentionCheck(self._client, fail_on_data_loss=False)
        others = check.report_other_stream(positions, self._client.describe())
        ended = sorted(shard_id for shard_id in others if by_shard[shard_id].is_finished)
        if ended:
            _log.warning(
                "The leases belong to a deleted stream of the same name. They mark %s of %s as "
                "finished, so these shards are not read. To read the stream from its start, stop "
                "all workers and delete the %s.",
                ", ".join(ended),
                self._client.address,
                self._table,
            )

    def _begin(self, table: TableScan) -> None:
        """Create the leases of a new application, or of a new stream.

        Of workers that start at the same time, the one that creates the first lease determines
        when the application began. The others then create the leases that are missing.

        They may list other shards, if the stream was resharded between their listings. Then the
        first lease of one does not stop the other, whose leases would begin with a later LATEST,
        and the records before it would be skipped.
        """
        require_not_vanished(self._table)
        shards, now_ms = self._client.list_shards(at=self._initial)
        self._leases.know_shards(shards)
        leases = leases_for_empty_table(shards, self._initial, now_ms)
        # At TRIM_HORIZON no record is skipped, whoever begins first.
        if self._initial is not TRIM_HORIZON and any(shard.parents for shard in shards):
            there = self._leases.scan_table()
            if there.leases or there.broken:
                self._complete(there)
                return
        if not leases or self._create(leases[:1], table):
            self._create(leases[1:], table)
        elif find_hole(self._leases.read()) is not None:
            self._fill_holes()

    def _fill_holes(self) -> None:
        begin, shards = self._lease_start(self._leases.read())
        leases = self._leases.read()
        for lease, hash_range in missing_hash_ranges(leases, shards):
            self._table.write(requests.add_hash_range(lease, hash_range))
        self._create_late(orphaned_children(leases, shards, begin), leases, shards, begin)
        leases = self._leases.read()
        missing = leases_for_partial_table(shards, leases, begin, self._initial)
        self._create_late(missing, leases, shards, begin)

    def _create_early_children(self) -> None:
        """Create the leases of shards whose parents are still to be read."""
        begin, shards = self._lease_start(self._leases.read())
        self._create(early_children(self._leases.read(), shards, begin))

    def _lease_start(self, leases: Sequence[Lease]) -> tuple[LeaseStart, list[Shard]]:
        """Return the start of shards without leases, and the shards to consider."""
        first_ms = application_start_ms(leases)
        since: AtTimestamp | None = None
        if isinstance(self._initial, AtTimestamp):
            since = self._initial
        elif self._initial is LATEST and first_ms:
            since = AtTimestamp(first_ms)
        shards, now_ms = self._client.list_shards(since=since)
        self._leases.know_shards(shards)
        return lease_start(leases, shards, self._initial, now_ms), shards

    def _create(self, leases: Iterable[Lease], table: TableScan | None = None) -> int:
        """Create leases; return the number of those that did not exist yet.

        ``table``: the whole table a moment ago, if the caller has it.
        """
        created = 0
        for lease in self._for_all_readers(list(leases), table):
            if self._table.create(lease.in_stream(self._stream)):
                created += 1
                key = lease_key(self._stream, lease.shard_id)
                self._tell(LeaseCreated(key, lease.shard_id, str(lease.checkpoint)))
        return created

    def _create_late(
        self,
        missing: Sequence[Lease],
        leases: Iterable[Lease],
        shards: Iterable[Shard],
        begin: LeaseStart,
    ) -> None:
        """Create missing leases of an application that began earlier, and tell the records lost."""
        self._create(missing)
        expired = expired_unread(missing, leases, shards)
        if not expired or begin.is_now:
            return
        stream = self._client.describe()
        # Assume the shortest period: the stream's own may once have been that short, and the
        # expired shards leave no trace of it.
        if not begin.may_have_lost(stream.service_time_ms, SHORTEST_RETENTION_MS):
            return
        for shard_id, parents in expired:
            key, address = lease_key(self._stream, shard_id), self._client.address
            what = (
                f"The parents of {shard_id} of {address} had no lease, and they have expired: "
                f"{', '.join(parents)}. The stream keeps records for "
                f"{stream.retention_ms / 3_600_000:g} hours. Records in those shards, if any, were "
                f"removed unread. Resuming with {shard_id}."
            )
            self._tell(ParentsLost(key, shard_id, address.name, tuple(parents), what))

    def _for_all_readers(self, leases: list[Lease], table: TableScan | None = None) -> list[Lease]:
        """Return the leases with records in place of instants if a Java KCL may share them.

        A Java KCL takes the instant of LATEST and AT_TIMESTAMP from its own configuration.
        ``table``: the whole table a moment ago; None: scans it.
        """
        if all(lease.timestamp_ms is None for lease in leases):
            return leases
        if java_kcl_may_read(table or self._table.scan(consistent=True), self._worker_id):
            return [
                lease
                if lease.timestamp_ms is None
                else replace(
                    lease,
                    checkpoint=self.checkpoint_at(lease.shard_id, lease.timestamp_ms),
                    timestamp_ms=None,
                )
                for lease in leases
            ]
        if any(lease.checkpoint.sequence_number == AT_TIMESTAMP for lease in leases):
            self._java_note.log(self._table)
        return leases

    def checkpoint_at(self, shard_id: str, instant_ms: int) -> ExtendedSequenceNumber:
        """Return the checkpoint that means this instant to every KCL. Raises service errors."""
        return checkpoint_at(self._client, shard_id, instant_ms, self._wait)

    def step(self, leases: Sequence[Lease], *, leads: bool) -> float:
        """Audit and clean up when due, if this worker leads by the last scan of the table.

        ``leases``: those of the stream by that scan.

        Returns the seconds until the next audit or cleanup. Raises service errors.
        """
        try:
            return self._step(leases, leads=leads)
        except InconsistentShardsError as error:
            if self._stream is None:
                raise
            # The rules know shards only, and those of all streams have the same ids.
            raise InconsistentShardsError(f"Stream {self._stream}: {error}") from None

    def _step(self, leases: Sequence[Lease], *, leads: bool) -> float:
        now = self._clock()
        self._leases.know(leases)
        if now >= self._next_audit:
            self._next_audit = now + self._settings.audit_interval
            if leads and leases:
                self._measure(lambda: self._audit(leases))
            elif not leases:
                self.sync()  # All rows were deleted, apparently by hand.
        if now >= self._next_cleanup:
            self._next_cleanup = now + self._settings.cleanup_interval
            if leads and self._settings.cleanup_leases:
                self._measure(lambda: self._clean_up(leases))
        return max(0.0, min(self._next_audit, self._next_cleanup) - self._clock())

    def _audit(self, leases: Sequence[Lease]) -> None:
        if not self._settings.parents_first:
            self._create_early_children()
        hole = find_hole(leases)
        self._confidence = self._confidence.after(hole)
        if self._confidence.audits < self._settings.audit_confidence:
            return
        stream = None if self._stream is None else str(self._stream)
        self._tell(LeasesMissing(str(self._table), stream, str(hole)))
        self._confidence = Confidence()
        self._fill_holes()

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
        shards, _ = self._client.list_shards()
        self._leases.know_shards(shards)
        lineage = Lineage.of(shards)
        for lease in leases:
            children = lineage.children(lease.shard_id)
            if lease.is_finished and not lease.child_ids and children:
                self._table.write(requests.add_children(lease, children))
        if not deletable(leases, shards):
            return
        remaining = self._leases.read()
        if audit_needs_them(remaining):
            return
        for lease in deletable(remaining, shards):
            if self._table.delete(lease):
                self._tell(LeaseDeleted(lease.key, lease.shard_id))

    def create_child_leases(
        self, parent: HeldLease, children: Sequence[Shard], end: ShardEnd = UNSEEN
    ) -> bool:
        """Create the leases of a finished shard's children, and store their ids in its lease.

        ``children``: the ChildShards at the end of the shard; empty if the end named no children
        (some servers never name them; Kinesis may omit them). ListShards is called then.

        Returns False if the caller must call again: another parent of a merged child will get a
        lease, but has none yet, or the children are not listed yet.
        Raises service errors, `LeaseLostError`, and `InconsistentShardsError`.
        """
        known = set(parent.lease.child_ids)
        if known and (not children or known == {child.id for child in children}):
            return True
        if self._still_waits(parent.key):
            return False
        if not children:
            listed = self._listed_children(parent)
            if not listed:
                return listed is not None
            children = listed
        is_merge = any(len(child.parents) > 1 for child in children)
        begin, shards, scan = LeaseStart(TRIM_HORIZON), list[Shard](), TableScan()
        if is_merge:
            begin, shards = self._lease_start([parent.lease])
            if parent.shard_id not in {shard.id for shard in shards}:
                # The shard ended before the instant at which the application begins, which was in
                # the future when its lease was made. So did ancestors of the child, perhaps.
                shards, _ = self._client.list_shards()
            scan = self._leases.scan()
        first_ms = application_start_ms([parent.lease, *scan.leases])
        made_ms = begin.made_ms if is_merge else end.seen_ms
        begin = replace(begin, application_ms=first_ms, made_ms=made_ms)
        broken = [row.shard_id for row in scan.broken]
        plan = plan_children(
            parent.lease,
            children,
            scan.leases,
            shards,
            begin,
            broken=broken,
            not_before_ms=end.not_before_ms,
        )
        self._create_late(plan.create, [parent.lease, *scan.leases], shards, begin)
        if plan.wait_for:
            if not broken:
                # Without these leases the children would wait forever: a child that has its lease
                # leaves no hole for an audit.
                forgotten = orphaned_children(scan.leases, shards, begin)
                self._create_late(forgotten, scan.leases, shards, begin)
            self._waits[parent.key] = (self._clock(), plan.wait_for)
            self._tell(ChildrenWaiting(parent.key, parent.shard_id, tuple(plan.wait_for)))
            return False
        self._waits.pop(parent.key, None)
        parent.add_children([child.id for child in children])
        return True

    def _listed_children(self, parent: HeldLease) -> Sequence[Shard] | None:
        """Return the children of an ended shard by ListShards; None if they are not listed yet.

        One call serves all shards that end at about the same time. The pauses grow while ListShards
        does not show the end.
        """
        key, now = parent.key, self._clock()
        ended = self._unlisted.setdefault(key, _Unlisted(since=now, due=now - _FRESH))
        if now < ended.due:
            return None
        shards = self._listing.listed_since(ended.due)
        if shards is None:
            return None
        lineage = Lineage.of(shards)
        children = lineage.children_of_ended(parent.shard_id, parent.lease.hash_range)
        if children is not None:
            del self._unlisted[key]
            return [lineage.shards[child] for child in children]
        now = self._clock()
        pause = min(2 * ended.pause, _ASK_AGAIN[1])
        self._unlisted[key] = _Unlisted(ended.since, now + ended.pause, pause)
        waited = now - ended.since
        if waited >= _WARN_AFTER > waited - ended.pause:
            address = self._client.address
            name, place = address.name, str(address)
            self._tell(ChildrenUnlisted(key, parent.shard_id, name, place, waited))
        return None

    def _still_waits(self, key: str) -> bool:
        """Return True if the leases that an ended shard's children wait for still do not exist.

        This check is cheap, but valid for a while only: a scan of the whole table is needed to know
        if the leases will ever exist.
        """
        checked_at, shard_ids = self._waits.get(key, (0.0, ()))
        is_recent = self._clock() - checked_at < self._settings.cleanup_interval
        if not shard_ids or not is_recent:
            return False
        return not any(self._table.get(lease_key(self._stream, each)) for each in shard_ids)
