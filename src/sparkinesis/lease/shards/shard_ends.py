"""The ends of a stream's shards: creates the leases of their children, once these are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from sparkinesis.events import ChildrenUnlisted, ChildrenWaiting
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import lease_key
from sparkinesis.lease.rules.children import UNSEEN, ShardEnd, orphaned_children, plan_children
from sparkinesis.lease.rules.lease_start import LeaseStart, application_start_ms
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.stream.calls.shared_calls import ShardListing
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.shard import Lineage, Shard

_FRESH = 2.0
"""A listing made up to this many seconds before the end was seen may already show it."""
_ASK_AGAIN = (1.0, 30.0)
"""Seconds between ListShards calls for a shard's children: the first pause, and the longest."""
_WARN_AFTER = 60.0
"""Seconds without children in ListShards after which a warning is logged."""


class _Unlisted(msgspec.Struct, frozen=True):
    """A shard that has ended but whose children are not known yet."""

    since: float
    """The time at which its end was seen."""
    due: float
    """The time of the oldest listing that may show the children."""
    pause: float = _ASK_AGAIN[0]
    """Seconds from that listing to the next."""
    is_published: bool = False
    """True once a warning was logged."""


class ShardEnds:
    """Creates the leases of children when the shards of one stream end. For any thread.

    recheck: seconds after which all shards and leases are read anew, while children wait for the
    leases of other parents.
    """

    def __init__(self, leases: StreamLeases, *, clock: Callable[[], float], recheck: float) -> None:
        self._leases = leases
        self._clock = clock
        self._recheck = recheck
        self._listing = ShardListing(leases.client, clock)
        self._waits: dict[str, tuple[float, tuple[str, ...]]] = {}
        """Each ended shard: time of the last full check, and the leases that its children need."""
        self._unlisted: dict[str, _Unlisted] = {}
        """The ended shards whose children are not known yet, by lease key."""

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
        is_merge = len(children[0].parents) > 1
        begin, shards, scan = LeaseStart(TRIM_HORIZON), list[Shard](), TableScan()
        if is_merge:
            begin, shards = self._leases.start([parent.lease])
            if parent.shard_id not in {shard.id for shard in shards}:
                # The shard ended before the instant at which the application begins, which was in
                # the future when its lease was made. So did ancestors of the child, perhaps.
                shards, _ = self._leases.client.list_shards()
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
        missing = list(plan.create)
        if plan.wait_for and not broken:
            # Without these leases the children would wait forever: a child that has its lease
            # leaves no hole for an audit.
            missing += orphaned_children(scan.leases, shards, begin)
        if missing:
            # A user who has just reset the application does not know of leases that are made after
            # that: they would begin before the position that the user gave.
            parent.confirm("create the children's leases")
            self._leases.create_late(missing, [parent.lease, *scan.leases], shards, begin)
        if plan.wait_for:
            self._waits[parent.key] = (self._clock(), plan.wait_for)
            self._leases.publish(ChildrenWaiting(parent.key, parent.shard_id, tuple(plan.wait_for)))
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
        pause, waited = min(2 * ended.pause, _ASK_AGAIN[1]), now - ended.since
        is_late = waited >= _WARN_AFTER
        self._unlisted[key] = _Unlisted(ended.since, now + ended.pause, pause, is_late)
        if is_late and not ended.is_published:
            address = self._leases.client.address
            name, place = address.name, str(address)
            self._leases.publish(ChildrenUnlisted(key, parent.shard_id, name, place, waited))
        return None

    def _still_waits(self, key: str) -> bool:
        """Return True if the leases that an ended shard's children wait for still do not exist.

        This check is cheap, but valid for a while only: a scan of the whole table is needed to know
        if the leases will ever exist.
        """
        waits = self._waits.get(key)
        if waits is None:
            return False
        checked_at, shard_ids = waits
        if self._clock() - checked_at >= self._recheck:
            return False
        return not any(
            self._leases.table.get(lease_key(self._leases.stream, each)) for each in shard_ids
        )
