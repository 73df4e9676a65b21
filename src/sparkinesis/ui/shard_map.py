"""The shards of a stream as a map: hash keys upwards, time to the right. Pure.

Splits and merges are its vertical borders. The shards are those of the stream's listing and those
of the lease table: either may know some that the other does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkinesis.lease.lease import Lease
from sparkinesis.stream.routing import MAX_HASH_KEY
from sparkinesis.stream.shard import Shard

_FIRST_YEAR, _LAST_YEAR = 1_356_998_400, 7_258_118_400
"""2013, in which Kinesis began, and 2200, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class MappedShard:
    """A shard's place on the map."""

    shard_id: str
    key: str | None
    """The key of its lease; None: the shard has no lease."""
    parents: tuple[str, ...]
    children: tuple[str, ...]
    keys: tuple[float, float]
    """The first and the last hash key, as shares of all of them: 0 to 1."""
    generation: int
    """0 for a shard without a known parent, else one more than the greatest of its parents."""
    began: float | None
    """Seconds since the epoch; None if unknown."""
    ended: float | None
    """Seconds since the epoch: the begin of its first child; None if open, or unknown."""
    is_open: bool
    """False once the shard takes no more records."""


def shard_map(leases: Iterable[Lease], listed: Iterable[Shard]) -> list[MappedShard]:
    """Return the shards of one stream, parents first; without those of unknown hash keys."""
    by_lease = {lease.shard_id: lease for lease in leases}
    by_listing = {shard.id: shard for shard in listed}
    every = sorted(by_lease.keys() | by_listing.keys())
    parents = {one: _parents(by_lease.get(one), by_listing.get(one)) for one in every}
    children: defaultdict[str, set[str]] = defaultdict(set)
    for one in every:
        for parent in parents[one]:
            children[parent].add(one)
        if (lease := by_lease.get(one)) is not None:
            children[one].update(lease.child_ids)
    generations = _generations(parents)
    began = {one: _began(by_lease.get(one), by_listing.get(one)) for one in every}
    found = []
    for one in sorted(every, key=lambda each: (generations[each], each)):
        lease, shard = by_lease.get(one), by_listing.get(one)
        hash_range = shard.hash_range if shard else None
        if hash_range is None and lease is not None:
            hash_range = lease.hash_range
        if hash_range is None:
            continue
        ends = [at for child in children[one] if (at := began.get(child)) is not None]
        is_closed = (shard is not None and not shard.is_open) or bool(children[one])
        found.append(
            MappedShard(
                one,
                lease.key if lease else None,
                parents[one],
                tuple(sorted(children[one])),
                (hash_range[0] / (MAX_HASH_KEY + 1), (hash_range[1] + 1) / (MAX_HASH_KEY + 1)),
                generations[one],
                began[one],
                min(ends, default=None) if is_closed else None,
                not (is_closed or (lease is not None and lease.is_finished)),
            )
        )
    return found


def born(sequence_number: str) -> int | None:
    """Return the second since the epoch in which the shard of a sequence number was made.

    The service does not document that its numbers hold it, and other servers' may not: None then.
    Nothing but a picture may rest on it.
    """
    if not (sequence_number.isdecimal() and len(sequence_number) < 60):
        return None
    number = int(sequence_number)
    second = (number >> 148) & 0xF_FFFF_FFFF
    is_known = number.bit_length() == 186 and number & 0xF == 2
    return second if is_known and _FIRST_YEAR <= second < _LAST_YEAR else None


def _parents(lease: Lease | None, shard: Shard | None) -> tuple[str, ...]:
    known = set(lease.parent_ids if lease else ()) | set(shard.parents if shard else ())
    return tuple(sorted(known))


def _began(lease: Lease | None, shard: Shard | None) -> float | None:
    listed = born(shard.starting_sequence_number) if shard else None
    return born(lease.checkpoint.sequence_number) if listed is None and lease else listed


def _generations(parents: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return each shard's generation. Shards get their ids in the order of their creation."""
    found: dict[str, int] = {}
    for one in sorted(parents):
        found[one] = max((found[p] + 1 for p in parents[one] if p in found), default=0)
    return found
