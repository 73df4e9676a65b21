"""The shard of a record: hash keys, and the ranges of hash keys that shards own. Pure."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import itemgetter

import msgspec

from sparkinesis.public import public
from sparkinesis.stream.shard import Shard

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
