"""Shards and their lineage: which shard came from which by splits and merges. No I/O here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard as ListShards, or the ChildShards of a GetRecords answer, describes it."""

    id: str
    parents: tuple[str, ...] = ()
    """No parent for a shard of the stream's start, one after a split, two after a merge."""
    is_open: bool = True
    hash_range: tuple[int, int] | None = None
    """First and last hash key, both inclusive; None where that was not told."""
    starting_sequence_number: str = "0"
    """No record of the shard has a smaller one; shards sort by it as they came into being."""


@dataclass(frozen=True)
class Lineage:
    """All shards known of one stream, by id; a parent may be missing once retention removed it."""

    shards: Mapping[str, Shard]

    @classmethod
    def of(cls, shards: Iterable[Shard]) -> Lineage:
        return cls({shard.id: shard for shard in shards})

    def is_behind(self, shard_id: str) -> bool:
        """Whether these were listed before this shard came into being, rather than that it expired.

        The service numbers shards as they come into being, so what came from an expired one is
        listed with a greater id. An empty listing tells nothing.
        """
        return bool(self.shards) and self._latest < shard_id

    def with_children(self, children: Iterable[Shard]) -> Lineage:
        """This lineage and the shards that a closed shard named as its children."""
        new = {child.id: child for child in children if child.id not in self.shards}
        return Lineage({**self.shards, **new}) if new else self

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
        """Ids of the shards that came from this one, sorted."""
        return self._children.get(shard_id, ())

    def children_of_ended(
        self, shard_id: str, hash_range: tuple[int, int] | None = None
    ) -> tuple[str, ...] | None:
        """Ids of all shards that came from one that has ended, sorted; none if all have expired.

        None: these were listed before the shard ended, so that its children cannot be known. A
        listing that shows the end has, for each hash key of the shard, a child, or an open shard
        that came from one. ``hash_range``: that of the shard, in case it is not listed any more.
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
        """Whether each hash key of the range is one of these shards'."""
        first, last = hash_range
        known = (self.shards[shard_id].hash_range for shard_id in shard_ids)
        for begins, ends in sorted(one for one in known if one is not None):
            if begins > first:
                break
            first = max(first, ends + 1)
        return first > last

    def listed_parents(self, shard_id: str) -> tuple[str, ...]:
        """Ids of the parents that the service still lists."""
        shard = self.shards.get(shard_id)
        return () if shard is None else tuple(p for p in shard.parents if p in self.shards)

    def unlisted_parents(self, shard_ids: Iterable[str]) -> tuple[str, ...]:
        """Ids of the parents of any of these that are not listed, sorted."""
        parents = {parent for shard_id in shard_ids for parent in self.shards[shard_id].parents}
        return tuple(sorted(parents.difference(self.shards)))

    def ancestors(self, shard_ids: Iterable[str]) -> frozenset[str]:
        """Ids of all listed shards from which any of these came, themselves excluded."""
        return self._closure(shard_ids, self.listed_parents)

    def descendants(self, shard_ids: Iterable[str]) -> frozenset[str]:
        """Ids of all listed shards that came from any of these, themselves excluded."""
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
        """Ids of the oldest shards kept: those without a listed parent, sorted."""
        return tuple(sorted(s for s in self.shards if not self.listed_parents(s)))

    def open_shards(self) -> tuple[str, ...]:
        """Ids of the shards that take records, sorted."""
        return tuple(sorted(s.id for s in self.shards.values() if s.is_open))
