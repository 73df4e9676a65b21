"""Shards: the hash keys that each owns, and the lineage that splits and merges make. Pure."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from operator import itemgetter

import msgspec

from sparkinesis.public import public

MAX_HASH_KEY = (1 << 128) - 1


@public
def hash_key(partition_key: str, explicit_hash_key: str | None) -> int:
    """Return a record's hash key: the explicit one, or the MD5 of the key's UTF-8, big-endian."""
    if explicit_hash_key is not None:
        return int(explicit_hash_key)
    # MD5 is not used for security here. Without the flag, a machine in FIPS mode refuses it.
    return int.from_bytes(
        hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big"
    )


class Shard(msgspec.Struct, frozen=True):
    """A shard as described by ListShards, or by the ChildShards of a GetRecords answer."""

    id: str
    parents: tuple[str, ...] = ()
    """Empty for an original shard of the stream, one id after a split, two after a merge."""
    is_open: bool = True
    hash_range: tuple[int, int] | None = None
    """The first and last hash key, both inclusive; None if unknown."""
    starting_sequence_number: str = "0"
    """The smallest possible number in the shard. Shards sort by it in order of creation."""
    ending_sequence_number: str | None = None
    """The greatest possible number; None for an open shard, or if it is not known."""

    def owns(self, hash_key: int) -> bool:
        """Return True if records with this hash key belong to the shard."""
        return self.hash_range is not None and (
            self.hash_range[0] <= hash_key <= self.hash_range[1]
        )


class ShardMap(msgspec.Struct, frozen=True, dict=True):
    """The shards that ListShards returned, by id; the open ones cover each hash key once."""

    shards: Mapping[str, Shard]

    @classmethod
    def of(cls, shards: Iterable[Shard]) -> ShardMap:
        return cls({shard.id: shard for shard in shards})

    @cached_property
    def _open(self) -> list[tuple[int, str]]:
        """The first hash keys of the open shards, each with its shard's id, in order."""
        return sorted(
            (shard.hash_range[0], shard.id)
            for shard in self.shards.values()
            if shard.is_open and shard.hash_range is not None
        )

    def shard_of(self, key: int) -> str:
        """Return the id of the open shard that owns this hash key."""
        return self._open[max(0, bisect_right(self._open, key, key=itemgetter(0)) - 1)][1]


class Lineage(msgspec.Struct, frozen=True, dict=True):
    """The known shards of a stream by id. A parent may be missing because it has expired."""

    shards: Mapping[str, Shard]

    @classmethod
    def of(cls, shards: Iterable[Shard]) -> Lineage:
        return cls({shard.id: shard for shard in shards})

    def is_behind(self, shard_id: str) -> bool:
        """Return True if this unlisted shard is newer than the listing, and not expired.

        The service numbers shards in order of creation, so the descendants of an expired shard are
        listed with greater ids. False for an empty listing.
        """
        return bool(self.shards) and self._latest < shard_id

    def with_children(self, children: Iterable[Shard]) -> Lineage:
        """Return this lineage with the children that a closed shard named.

        All parents of such a child are closed, also one that was open when it was listed.
        """
        new = {child.id: child for child in children if child.id not in self.shards}
        if not new:
            return self
        parents = {parent for child in new.values() for parent in child.parents}
        closed = {
            parent: msgspec.structs.replace(self.shards[parent], is_open=False)
            for parent in parents & self.shards.keys()
        }
        return Lineage({**self.shards, **closed, **new})

    @cached_property
    def _latest(self) -> str:
        return max(self.shards)

    @cached_property
    def _children(self) -> Mapping[str, tuple[str, ...]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for shard in self.shards.values():
            for parent in shard.parents:
                found[parent].append(shard.id)
        return {parent: tuple(sorted(ids)) for parent, ids in found.items()}

    def children(self, shard_id: str) -> tuple[str, ...]:
        """Return the sorted ids of the shard's children."""
        return self._children.get(shard_id, ())

    def children_of_ended(
        self, shard_id: str, hash_range: tuple[int, int] | None = None
    ) -> tuple[str, ...] | None:
        """Return the sorted ids of an ended shard's children; empty if all have expired.

        Returns None if the listing is from before the shard's end, so that its children are
        unknown. A listing from after the end has, for each hash key of the shard, a child or an
        open descendant of one. ``hash_range``: the shard's range, in case it is no longer listed.
        """
        children = self.children(shard_id)
        own = self.shards.get(shard_id)
        if own is not None:
            hash_range = own.hash_range or hash_range
        if children and (hash_range is None or self._cover(children, hash_range)):
            return children
        if own.is_open if own is not None else not self.shards or self.is_behind(shard_id):
            return None
        if hash_range is None:
            return () if own is None else None
        return children if self._cover({*children, *self.open_shards()}, hash_range) else None

    def _cover(self, shard_ids: Iterable[str], hash_range: tuple[int, int]) -> bool:
        """Return True if these shards own all hash keys of the range."""
        first, last = hash_range
        known = (self.shards[shard_id].hash_range for shard_id in shard_ids)
        for begins, ends in sorted(one for one in known if one is not None):
            if begins > first:
                break
            first = max(first, ends + 1)
        return first > last

    def listed_parents(self, shard_id: str) -> tuple[str, ...]:
        """Return the ids of the shard's parents that the service still lists."""
        shard = self.shards.get(shard_id)
        return () if shard is None else tuple(p for p in shard.parents if p in self.shards)

    def unlisted_parents(self, shard_ids: Iterable[str]) -> tuple[str, ...]:
        """Return the sorted ids of these shards' parents that are not listed."""
        parents = {parent for shard_id in shard_ids for parent in self.shards[shard_id].parents}
        return tuple(sorted(parents.difference(self.shards)))

    def ancestors(self, shard_ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of all listed ancestors of these shards."""
        return self._closure(shard_ids, self.listed_parents)

    def descendants(self, shard_ids: Iterable[str]) -> frozenset[str]:
        """Return the ids of all listed descendants of these shards."""
        return self._closure(shard_ids, self.children)

    @staticmethod
    def _closure(
        shard_ids: Iterable[str], step: Callable[[str], tuple[str, ...]]
    ) -> frozenset[str]:
        found: set[str] = set()
        todo = [other for shard_id in shard_ids for other in step(shard_id)]
        while todo:
            shard_id = todo.pop()
            if shard_id not in found:
                found.add(shard_id)
                todo.extend(step(shard_id))
        return frozenset(found)

    def roots(self) -> tuple[str, ...]:
        """Return the sorted ids of the shards without a listed parent."""
        return tuple(sorted(s for s in self.shards if not self.listed_parents(s)))

    def open_shards(self) -> tuple[str, ...]:
        """Return the sorted ids of the open shards."""
        return tuple(sorted(s.id for s in self.shards.values() if s.is_open))
