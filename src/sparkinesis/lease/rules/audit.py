"""Audits and cleanups: who audits, hash keys without a lease, leases that no worker needs. Pure.

The KCL's ``PeriodicShardSyncManager`` audits in the same way: a shard sync closes a hole that
several audits in a row have found. Its ``LeaseCleanupManager`` deletes. The leases of a stream may
be deleted, too, once it has left the application and nobody reads it.
"""

# What a cleanup must leave alone:
#
# - A finished lease stays until its children are being read, as in the KCL, and as long as a listed
#   child has no lease: nothing else would lead to that child.
# - It also stays while some hash keys have no unfinished lease (`audit_needs_them`): after an
#   outage in which all shards between the first and the present ones expired, the finished lease
#   of the first was cleaned up before an audit had made the missing leases. The application then
#   began anew: at TRIM_HORIZON no loss was reported, at LATEST records that were there were
#   skipped. Only the finished lease knew when the application began.
# - A listing may be behind: a shard that it lacks has expired only if no ancestor is listed, as
#   older shards expire first. An answer without any shard is an error, and expires nothing.
# - An unfinished lease is never deleted, even if its shard has expired: that is a loss, which the
#   shard's reader must report.
#
# A hole must be the same in several audits in a row: a reshard opens and closes holes.

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, TRIM_HORIZON
from sparkinesis.lease.lease import Lease, leases_by_stream
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import MAX_HASH_KEY, Lineage, Shard

_T = TypeVar("_T")

_SEED = 1947
"""The seed of the KCL's ``DeterministicShuffleShardSyncLeaderDecider``."""


def auditor(leases: Iterable[Lease], expired: Container[str] = ()) -> str | None:
    """Return the worker that audits by this snapshot; None if no lease has an owner: any may.

    The auditor is the one that a KCL 2.x elects as its leader: the first of all owners, sorted,
    after a shuffle with a fixed seed. Unlike in the KCL, finished leases do not count, and neither
    do leases whose keys are in ``expired``: both may name a dead worker, and then no worker would
    audit.

    Two workers may see different snapshots, so two may audit for a while. Their work is correct
    even then: they create only leases that do not exist.
    """
    owners = {
        lease.owner
        for lease in leases
        if lease.owner and not lease.is_finished and lease.key not in expired
    }
    shuffled = java_shuffle(sorted(owners, key=java_order), _SEED)
    return shuffled[0] if shuffled else None


def audits(worker_id: str, leases: Iterable[Lease], snapshot: Snapshot) -> bool:
    """Return True if the worker is the auditor, among the owners of these leases, by a snapshot.

    Each stream has an auditor of its own among its readers: during a deployment, the auditor of the
    whole table may not read it. Where workers read only their own rows, the leader that assigns all
    leases audits them, too.
    """
    if snapshot.audits is not None:
        return snapshot.audits
    return auditor(leases, snapshot.expired) in {None, worker_id}


def java_order(text: str) -> bytes:
    """Return a key that sorts like Java's ``String.compareTo``: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def java_shuffle(items: Sequence[_T], seed: int) -> list[_T]:
    """Return the items in the order after ``Collections.shuffle(items, new Random(seed))``."""
    shuffled, bounds = list(items), range(len(items), 1, -1)
    for i, j in zip(bounds, java_numbers(seed, bounds), strict=True):
        shuffled[i - 1], shuffled[j] = shuffled[j], shuffled[i - 1]
    return shuffled


def java_numbers(seed: int, bounds: Iterable[int]) -> Iterator[int]:
    """Yield a number below each bound, as ``new java.util.Random(seed).nextInt(bound)`` returns it.

    The algorithm, a linear congruential generator of 48 bits, is part of Java's documented API.
    """
    mask = (1 << 48) - 1
    state = (seed ^ 0x5DEECE66D) & mask
    for bound in bounds:
        number = None
        while number is None:
            state = (state * 0x5DEECE66D + 0xB) & mask
            bits = state >> 17
            if bound & (bound - 1) == 0:
                number = bound * bits >> 31
            # Skip the incomplete last block of `bound` numbers, which would favour low numbers.
            elif bits - bits % bound + bound <= 1 << 31:
                number = bits % bound
        yield number


class Hole(msgspec.Struct, frozen=True):
    """Hash keys, both ends included, that no unfinished lease covers."""

    first: int
    last: int


class Confidence(msgspec.Struct, frozen=True):
    """The number of consecutive audits that found the same hole."""

    hole: Hole | None = None
    audits: int = 0

    def after(self, hole: Hole | None) -> Confidence:
        """Return the confidence after one more audit; a different hole starts again at 1.

        Resharding opens and closes holes.
        """
        if hole is None:
            return Confidence()
        return Confidence(hole, self.audits + 1 if hole == self.hole else 1)


def find_hole(leases: Iterable[Lease]) -> Hole | None:
    """Return the lowest hole; None if unfinished leases cover all hash keys.

    Overlaps are fine: the leases of a parent and of its children exist together. A lease without
    a known range covers nothing: add what `missing_hash_ranges` finds first.
    """
    ranges = sorted(
        lease.hash_range
        for lease in leases
        if lease.hash_range is not None and not lease.is_finished
    )
    uncovered = 0
    for first, last in ranges:
        if first > uncovered:
            return Hole(uncovered, first - 1)
        uncovered = max(uncovered, last + 1)
    return Hole(uncovered, MAX_HASH_KEY) if uncovered <= MAX_HASH_KEY else None


def missing_hash_ranges(
    leases: Iterable[Lease], shards: Iterable[Shard]
) -> list[tuple[Lease, tuple[int, int]]]:
    """Return unfinished leases without a hash range (KCLs before 1.14), and the range of each."""
    ranges = {shard.id: shard.hash_range for shard in shards}
    return [
        (lease, found)
        for lease in leases
        if lease.hash_range is None
        and not lease.is_finished
        and (found := ranges.get(lease.shard_id)) is not None
    ]


def deletable(leases: Iterable[Lease], listed_shards: Iterable[Shard] | None) -> list[Lease]:
    """Return the finished leases to delete by this snapshot, the oldest generation only.

    ``listed_shards``: all that ListShards returns; None if it was not called. As in the KCL's
    ``LeaseCleanupManager``, a finished lease is deleted when all its children are being read (their
    checkpoints are neither TRIM_HORIZON nor AT_TIMESTAMP) and its parents' leases are deleted. It
    is also deleted when the service lists neither its shard, nor an ancestor, nor a child that has
    no lease. An unfinished lease stays even if its shard has expired: that loss must be reported.
    """
    leased = {lease.shard_id: lease for lease in leases}
    lineage = Lineage.of(listed_shards or ())
    return [
        lease
        for lease in leased.values()
        if lease.is_finished
        and (_is_passed_on(lease, leased, lineage) or _is_expired(lease, leased, lineage))
    ]


def audit_needs_them(leases: Iterable[Lease]) -> bool:
    """Return True if an audit needs the finished leases: some hash keys have no unfinished lease.

    The missing leases begin where the application began, and only a finished lease may show when
    that was. (A KCL deletes the lease, and begins anew.)
    """
    return find_hole(leases) is not None


def _is_passed_on(lease: Lease, leased: dict[str, Lease], lineage: Lineage) -> bool:
    children = _children(lease, lineage)
    return (
        bool(children)
        and all(child in leased and _has_begun(leased[child]) for child in children)
        and not any(parent in leased for parent in lease.parent_ids)
    )


def _is_expired(lease: Lease, leased: dict[str, Lease], lineage: Lineage) -> bool:
    # An answer without any shard is an error, and does not mean that all shards have expired.
    return (
        bool(lineage.shards)
        and lease.shard_id not in lineage.shards
        and not _comes_from_listed(lease, leased, lineage)
        and all(
            child in leased or child not in lineage.shards for child in _children(lease, lineage)
        )
    )


def _comes_from_listed(lease: Lease, leased: dict[str, Lease], lineage: Lineage) -> bool:
    """Return True if an ancestor is listed: older shards expire first, so the listing is stale.

    One page of a listing may be stale, and the next page, with younger shards, may not.
    """
    todo, seen = list(lease.parent_ids), {lease.shard_id}
    while todo:
        shard_id = todo.pop()
        if shard_id in lineage.shards:
            return True
        if shard_id in leased and shard_id not in seen:
            seen.add(shard_id)
            todo += leased[shard_id].parent_ids
    return False


def _children(lease: Lease, lineage: Lineage) -> set[str]:
    return {*lease.child_ids, *lineage.children(lease.shard_id)}


def _has_begun(lease: Lease) -> bool:
    return lease.checkpoint.sequence_number not in {TRIM_HORIZON, AT_TIMESTAMP}


def unread_former_streams(
    leases: Iterable[Lease],
    is_wanted: Callable[[StreamIdentifier], bool],
    expired: Collection[str] = (),
) -> frozenset[StreamIdentifier]:
    """Return the streams that have leases, that are not wanted, and that no live worker reads.

    ``is_wanted``: returns True for a stream of the application. ``expired``: keys of leases whose
    owners have not renewed them for a failover time.

    Another worker may read a stream that this one does not want, as during a deployment.
    """

    def is_read(lease: Lease) -> bool:
        has_owner = lease.actual_owner is not None and lease.key not in expired
        return has_owner and not lease.is_finished

    return frozenset(
        stream
        for stream, own in leases_by_stream(leases).items()
        if stream is not None and not is_wanted(stream) and not any(map(is_read, own))
    )


def observe_former(
    since: Mapping[StreamIdentifier, float], former: Collection[StreamIdentifier], now: float
) -> dict[StreamIdentifier, float]:
    """Return the time since which each stream is former and unread, after one more scan."""
    return {stream: since.get(stream, now) for stream in former}


def left_streams(
    since: Mapping[StreamIdentifier, float], now: float, grace: float
) -> frozenset[StreamIdentifier]:
    """Return the streams that no worker of the application wants any more.

    ``grace``: seconds in which a worker that wants a stream takes its leases, once these are free.
    The other workers' sets of streams are not known: a stream that none has taken in that time has
    left them all.
    """
    return frozenset(stream for stream, at in since.items() if now - at >= grace)


def deletable_streams(
    since: Mapping[StreamIdentifier, float],
    now: float,
    *,
    grace: float,
    delete_after: float | None,
    only: Collection[str] | None = None,
) -> list[StreamIdentifier]:
    """Return the streams whose leases are to be deleted now, in order.

    ``delete_after`` and ``only`` as in `sparkinesis.FormerStreams`; ``grace`` as above.
    """
    if delete_after is None:
        return []
    return sorted(
        stream
        for stream in left_streams(since, now, max(grace, delete_after))
        if only is None or stream.name in only or str(stream) in only
    )
