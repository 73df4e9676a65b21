"""Keeps a lease table in step with its stream's shards: makes leases, audits, and cleans up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

from sparkinesis.lease.checkpoint_search import checkpoint_at
from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import Confidence, find_hole, missing_hash_ranges
from sparkinesis.lease.rules.cleanup import deletable
from sparkinesis.lease.rules.java import java_kcl_may_read
from sparkinesis.lease.rules.leader import leader
from sparkinesis.lease.rules.lease_start import (
    LeaseStart,
    application_start_ms,
    last_known_position,
    lease_start,
)
from sparkinesis.lease.rules.shard_sync import (
    UNSEEN,
    ShardEnd,
    expired_unread,
    leases_for_empty_table,
    leases_for_partial_table,
    orphaned_children,
    plan_children,
    through_reshard,
)
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.listing import ShardListing
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.reading.retention import SHORTEST_RETENTION_MS, RetentionCheck
from sparkinesis.stream.shard import Lineage, Shard

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardSyncSettings:
    """Durations are in seconds; see `WorkerOptions` for the defaults."""

    audit_interval: float
    audit_confidence: int
    cleanup_interval: float
    cleanup_leases: bool


_FRESH = 2.0
"""Seconds that a listing may be older than the end of a shard: it may show the end all the same."""
_ASK_AGAIN = (1.0, 30.0)
"""Seconds until ListShards is asked again for the children of a shard: at first, and at most."""
_WORTH_A_WORD = 60.0
"""Seconds without an answer after which a warning says so."""


@dataclass(frozen=True, slots=True)
class _Unlisted:
    """A shard that has ended, and of whose children nobody has told yet."""

    since: float
    """When its end was seen."""
    due: float
    """A listing from then on may tell."""
    pause: float = _ASK_AGAIN[0]
    """Seconds until the listing after that one."""


class ShardSyncer:
    """`sync` is for the start and `step` for one thread; `create_child_leases` is for any."""

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
    ) -> None:
        self._client = client
        self._table = table
        self._worker_id = worker_id
        self._initial = initial
        self._settings = settings
        self._clock = clock
        self._wait = wait
        self._confidence = Confidence()
        self._waits: dict[str, tuple[float, tuple[str, ...]]] = {}
        """By ended shard: when all was looked at last, and whose leases its children wait for."""
        self._listing = ShardListing(client, clock)
        self._unlisted: dict[str, _Unlisted] = {}
        """By the lease key of an ended shard."""
        self._has_told_java = False
        """What an operator of Java workers should know of these leases."""
        self._next_audit = clock() + settings.audit_interval
        self._next_cleanup = clock() + settings.cleanup_interval

    def sync(self) -> None:
        """Make the leases that an application needs to begin; all workers may do so at once.

        A table with leases is only looked at, unless hash keys are left out; so is one in which
        any is broken, which whoever takes leases tells of.
        Raises service errors, and `InconsistentShardsError` if the shards listed do not tile.
        """
        through_reshard(self._sync, self._wait)

    def _sync(self) -> None:
        scan = self._table.scan(consistent=True).single_stream
        self._look_for_another_stream(scan.leases)
        if not scan.leases and not scan.broken:
            self._begin()
        elif find_hole(scan.leases) is not None and not scan.broken:
            # What a broken lease stands for is not known, nor what is missing beside it.
            self._fill_holes()

    def _look_for_another_stream(self, leases: Iterable[Lease]) -> None:
        """Tell of leases that are older than the stream: it has the name of a deleted one."""
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
                "By the leases of the deleted stream, %s of %s have ended, so these shards are not "
                "read. Stop all workers and delete the %s, to begin anew with the stream.",
                ", ".join(ended),
                self._client.address,
                self._table,
            )

    def _begin(self) -> None:
        """The leases of a new application.

        Of workers that start at the same time, whichever makes the first lease says when the
        application began. The others then make what is missing beside that lease.
        """
        shards, now_ms = self._client.list_shards(at=self._initial)
        leases = leases_for_empty_table(shards, self._initial, now_ms)
        if leases and not self._create(leases[:1]):
            self._fill_holes()
        else:
            self._create(leases[1:])

    def _fill_holes(self) -> None:
        leases = self._table.single_stream_leases(consistent=True)
        begin, shards = self._lease_start(leases)
        leases = self._table.single_stream_leases(consistent=True)
        for lease, hash_range in missing_hash_ranges(leases, shards):
            self._table.add_hash_range(lease, hash_range)
        self._create_late(orphaned_children(leases, shards, begin), leases, shards, begin)
        leases = self._table.single_stream_leases(consistent=True)
        missing = leases_for_partial_table(shards, leases, begin, self._initial)
        self._create_late(missing, leases, shards, begin)

    def _lease_start(self, leases: Sequence[Lease]) -> tuple[LeaseStart, list[Shard]]:
        """Where a shard begins beside these leases, and the shards that are of concern."""
        first_ms = application_start_ms(leases)
        since: AtTimestamp | None = None
        if isinstance(self._initial, AtTimestamp):
            since = self._initial
        elif self._initial is LATEST and first_ms:
            since = AtTimestamp(first_ms)
        shards, now_ms = self._client.list_shards(since=since)
        return lease_start(leases, shards, self._initial, now_ms), shards

    def _create(self, leases: Iterable[Lease]) -> int:
        """Make leases; returns how many of them were not there yet."""
        created = 0
        for lease in self._for_all_readers(list(leases)):
            if self._table.create(lease):
                created += 1
                _log.info("Created the lease %s at %s", lease.key, lease.checkpoint)
        return created

    def _create_late(
        self,
        missing: Sequence[Lease],
        leases: Iterable[Lease],
        shards: Iterable[Shard],
        begin: LeaseStart,
    ) -> None:
        """Make leases that an application lacks which has begun before, and tell what it lost."""
        self._create(missing)
        gone = expired_unread(missing, leases, shards)
        if not gone or begin.is_now:
            return
        stream = self._client.describe()
        # By the shortest period: the stream's own may have been shorter for a while, and nothing is
        # left of those shards that would show it.
        if not begin.may_have_lost(stream.service_time_ms, SHORTEST_RETENTION_MS):
            return
        for shard_id, parents in gone:
            _log.warning(
                "No lease was there for the shards from which %s of %s came, and they have "
                "expired: %s. The stream keeps records for %g hours, and what those shards "
                "held was removed before it was read, if they held anything. Going on with %s.",
                shard_id,
                self._client.address,
                ", ".join(parents),
                stream.retention_ms / 3_600_000,
                shard_id,
            )

    def _for_all_readers(self, leases: list[Lease]) -> list[Lease]:
        """The same, behind a record in place of an instant where a Java KCL may read them.

        A Java KCL takes the instant of LATEST and AT_TIMESTAMP from its own configuration.
        """
        if all(lease.timestamp_ms is None for lease in leases):
            return leases
        if java_kcl_may_read(self._table.scan(consistent=True), self._worker_id):
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
        begins = any(lease.checkpoint.sequence_number == AT_TIMESTAMP for lease in leases)
        if begins and not self._has_told_java:
            self._has_told_java = True
            _log.info(
                "The %s begins at an instant (AT_TIMESTAMP). A Java KCL that is to share it before "
                "each shard has a checkpoint must be configured to begin at that instant, too; or "
                "move the application by `sparkinesis reset`, which writes no instants.",
                self._table,
            )
        return leases

    def checkpoint_at(self, shard_id: str, instant_ms: int) -> ExtendedSequenceNumber:
        """The checkpoint that means an instant to every KCL. Raises service errors."""
        return checkpoint_at(self._client, shard_id, instant_ms, self._wait)

    def step(self, leases: Sequence[Lease], expired: Container[str] = ()) -> float:
        """Audit and clean up when it is time, if this worker leads by the last look at the table.

        ``expired``: keys of leases whose owners seem dead; those do not lead.

        Returns seconds until the next is due. Raises service errors.
        """
        now = self._clock()
        leads = leader(leases, expired) in {None, self._worker_id}
        if now >= self._next_audit:
            self._next_audit = now + self._settings.audit_interval
            if leads and leases:
                self._audit(leases)
            elif not leases:
                self.sync()  # All rows were deleted, by hand as it seems: it looks again.
        if now >= self._next_cleanup:
            self._next_cleanup = now + self._settings.cleanup_interval
            if leads and self._settings.cleanup_leases:
                self._clean_up(leases)
        return max(0.0, min(self._next_audit, self._next_cleanup) - self._clock())

    def _audit(self, leases: Sequence[Lease]) -> None:
        hole = find_hole(leases)
        self._confidence = self._confidence.after(hole)
        if self._confidence.audits < self._settings.audit_confidence:
            return
        _log.warning(
            "No lease of the %s covers the hash keys %s: making those that are missing",
            self._table,
            hole,
        )
        self._confidence = Confidence()
        self._fill_holes()

    def _clean_up(self, leases: Sequence[Lease]) -> None:
        if not any(lease.is_finished for lease in leases):
            return
        shards, _ = self._client.list_shards()
        lineage = Lineage.of(shards)
        for lease in leases:
            children = lineage.children(lease.shard_id)
            if lease.is_finished and not lease.child_ids and children:
                self._table.add_children(lease, children)
        remaining = self._table.single_stream_leases(consistent=True)
        for lease in deletable(remaining, shards):
            if self._table.delete(lease):
                _log.info("Deleted the lease %s: its shard is done, as are its parents", lease.key)

    def create_child_leases(
        self, parent: HeldLease, children: Sequence[Shard], end: ShardEnd = UNSEEN
    ) -> bool:
        """Leases for the shards that follow one that has ended, and their ids in its own lease.

        ``children``: as the end of the shard named them; none where it named none, as some servers
        do and the service may (ChildShards is optional). Then ListShards is asked.

        False, so ask again: another parent of a merged child has no lease yet, and will get one. Or
        the children are not listed yet.
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
            scan = self._table.scan(consistent=True).single_stream
        first_ms = application_start_ms([parent.lease, *scan.leases])
        made_ms = begin.made_ms if is_merge else end.seen_ms
        begin = replace(begin, application_ms=first_ms, made_ms=made_ms)
        broken = [row.key for row in scan.broken]
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
                # Else they wait for ever: where the child has its lease, no audit sees a hole.
                forgotten = orphaned_children(scan.leases, shards, begin)
                self._create_late(forgotten, scan.leases, shards, begin)
            self._waits[parent.key] = (self._clock(), plan.wait_for)
            _log.info(
                "%s has ended; the shards that follow wait for the leases of %s",
                parent.shard_id,
                ", ".join(plan.wait_for),
            )
            return False
        self._waits.pop(parent.key, None)
        parent.add_children([child.id for child in children])
        return True

    def _listed_children(self, parent: HeldLease) -> Sequence[Shard] | None:
        """The shards that follow one that has ended, as ListShards tells them.

        None: it does not tell yet. There is one call for all shards that end at about the same
        time, and fewer and fewer while the listing lags behind.
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
        if waited >= _WORTH_A_WORD > waited - ended.pause:
            _log.warning(
                "%s of %s has ended %.0f s ago without naming the shards that follow, and "
                "ListShards does not tell of its end: what follows is not read until it does.",
                parent.shard_id,
                self._client.address,
                waited,
            )
        return None

    def _still_waits(self, key: str) -> bool:
        """Whether nothing has come that an ended shard's children wait for, by a cheap look.

        Not for ever: what was to come may not be any more, which takes the whole table to know.
        """
        looked_at, shard_ids = self._waits.get(key, (0.0, ()))
        is_recent = self._clock() - looked_at < self._settings.cleanup_interval
        return bool(shard_ids) and is_recent and not any(map(self._table.get, shard_ids))
