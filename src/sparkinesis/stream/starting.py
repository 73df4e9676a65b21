"""A position in the words of the two calls that begin to read a shard."""

from __future__ import annotations

from typing import Any

from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)


def iterator_type(position: Position, inclusive: bool) -> dict[str, Any]:
    """GetShardIterator's arguments for what follows ``position``.

    ``inclusive`` begins AT the record of an `AfterRecord` position. Raises ValueError for SHARD_END
    and for an application's name.
    """
    if isinstance(position, AfterRecord):
        inclusive = inclusive or position.sub_sequence_number is not None
        kind = "AT_SEQUENCE_NUMBER" if inclusive else "AFTER_SEQUENCE_NUMBER"
        return {"ShardIteratorType": kind, "StartingSequenceNumber": position.sequence_number}
    if isinstance(position, AtTimestamp):
        return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": position.instant}
    if position in {TRIM_HORIZON, LATEST}:
        return {"ShardIteratorType": str(position)}
    raise ValueError(f"nothing follows {SHARD_END}: a closed shard has no iterator at its end")


_STARTING_POSITION = {
    "ShardIteratorType": "Type",
    "StartingSequenceNumber": "SequenceNumber",
    "Timestamp": "Timestamp",
}


def starting_position(position: Position, inclusive: bool) -> dict[str, Any]:
    """SubscribeToShard's StartingPosition: the same values under other names."""
    words = iterator_type(position, inclusive)
    return {_STARTING_POSITION[name]: value for name, value in words.items()}
