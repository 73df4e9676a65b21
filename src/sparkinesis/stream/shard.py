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
