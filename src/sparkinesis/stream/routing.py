"""The shard of a record: hash keys, and the ranges of hash keys that shards own. Pure."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

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


@dataclass(frozen=True, slots=True)
class HashRange:
    """A shard and the hash keys that it owns, both ends included."""

    shard_id: str
    first: int
    last: int
    is_open: bool = True

    def __contains__(self, key: int) -> bool:
        return self.first <= key <= self.last


@dataclass(frozen=True)
class ShardMap:
    """The shards that ListShards returned; the open ones cover each hash key once."""

    ranges: Mapping[str, HashRange]

    @classmethod
    def of(cls, ranges: Iterable[HashRange]) -> ShardMap:
        return cls({found.shard_id: found for found in ranges})

    @cached_property
    def _open(self) -> list[HashRange]:
        return sorted((r for r in self.ranges.values() if r.is_open), key=lambda r: r.first)

    @cached_property
    def _firsts(self) -> list[int]:
        return [found.first for found in self._open]

    def shard_of(self, key: int) -> str:
        """Return the id of the open shard that owns this hash key."""
        return self._open[max(0, bisect_right(self._firsts, key) - 1)].shard_id
