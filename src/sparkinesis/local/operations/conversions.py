"""Conversions between the model and requests or responses, for several operations."""

from __future__ import annotations

from sparkinesis.local.model.shard import Shard
from sparkinesis.local.operations.context import Json

_FARTHEST_MS = 1 << 62


def shard_json(shard: Shard) -> Json:
    """Return a shard as in the responses of ListShards and DescribeStream."""
    numbers = {"StartingSequenceNumber": shard.starting_sequence_number}
    ending = shard.ending_sequence_number
    if ending is not None:
        numbers["EndingSequenceNumber"] = ending
    answer: Json = {
        "ShardId": shard.id,
        "HashKeyRange": shard.hash_range,
        "SequenceNumberRange": numbers,
    }
    for name, parent in zip(
        ("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False
    ):
        answer[name] = parent
    return answer


def millis(seconds: float) -> int:
    """Convert an instant of a request to ms, clamped to what a NextToken can hold."""
    return round(min(max(seconds * 1000, -_FARTHEST_MS), _FARTHEST_MS))
