"""The stream's shards: their hash ranges, splitting and merging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkinesis import hash_key


def open_shards(kinesis: Any, stream: str) -> dict[str, range]:
    """The hash ranges of the open shards, in order."""
    listed = kinesis.list_shards(StreamName=stream, ShardFilter={"Type": "AT_LATEST"})["Shards"]
    ranges = {shard["ShardId"]: _hash_range(shard["HashKeyRange"]) for shard in listed}
    return dict(sorted(ranges.items(), key=lambda item: item[1].start))


def _hash_range(limits: Mapping[str, str]) -> range:
    return range(int(limits["StartingHashKey"]), int(limits["EndingHashKey"]) + 1)


def split_one(kinesis: Any, stream: str) -> str:
    """Split the first open shard in the middle; returns its name."""
    shard, keys = next(iter(open_shards(kinesis, stream).items()))
    middle = (keys.start + keys.stop) // 2
    kinesis.split_shard(StreamName=stream, ShardToSplit=shard, NewStartingHashKey=str(middle))
    return short(shard)


def merge_two(kinesis: Any, stream: str) -> str:
    """Merge the last two open shards; returns their names."""
    left, right = list(open_shards(kinesis, stream))[-2:]
    kinesis.merge_shards(StreamName=stream, ShardToMerge=left, AdjacentShardToMerge=right)
    return f"{short(left)} and {short(right)}"


def short(shard: str) -> str:
    """Shorten ``shardId-000000000003`` to 3."""
    return str(int(shard.removeprefix("shardId-")))


class ShardMap:
    """A map of keys to open shards. The results of puts show when it is outdated."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._ranges = open_shards(kinesis, stream)

    def shard_of(self, partition_key: str) -> str:
        place = hash_key(partition_key, None)
        # Not `place in range`: a range of 2**126 numbers has no length in C.
        return next(s for s, keys in self._ranges.items() if keys.start <= place < keys.stop)

    def learn(self, results: Sequence[Mapping[str, Any]]) -> None:
        """List the shards again if a record is in an unknown shard."""
        if any(r["ShardId"] not in self._ranges for r in results if "ShardId" in r):
            self._ranges = open_shards(self._kinesis, self._stream)
