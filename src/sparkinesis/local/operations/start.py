"""The start of a read: positions of GetShardIterator and SubscribeToShard."""

from __future__ import annotations

from sparkinesis.local import errors
from sparkinesis.local.encoding.requests import StartingPosition
from sparkinesis.local.model import sequence
from sparkinesis.local.model.shard import Shard
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.operations.context import ACCOUNT, Context
from sparkinesis.local.operations.conversions import millis


def check_start(context: Context, start: StartingPosition) -> None:
    """Raise KinesisError if the parts of a start do not belong together, in any stream."""
    kind, number = start.type, start.sequence_number
    by_number = kind in {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"}
    if by_number != (number is not None):
        given = "also a" if number is not None else "no"
        raise errors.invalid_argument(
            "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and "
            "StartingSequenceNumber or (2) TRIM_HORIZON or LATEST and no "
            f"StartingSequenceNumber. Request specified {kind} and {given} "
            "StartingSequenceNumber."
        )
    if kind != "AT_TIMESTAMP":
        return
    if start.timestamp is None:
        raise errors.invalid_argument(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter."
        )
    time_ms = millis(start.timestamp)
    if time_ms > context.now:
        raise errors.invalid_argument(
            "The timestampInMillis parameter cannot be greater than the "
            f"currentTimestampInMillis. timestampInMillis: {time_ms}, "
            f"currentTimestampInMillis: {context.now}"
        )


def start_position(context: Context, start: StartingPosition, stream: Stream, shard: Shard) -> int:
    """Return the position in the shard where a read starts. Raises: KinesisError."""
    position = _requested_position(context, start, stream, shard)
    return max(position - context.fault.begins_early, min(position, shard.first_position))


def _requested_position(
    context: Context, start: StartingPosition, stream: Stream, shard: Shard
) -> int:
    kind, number = start.type, start.sequence_number
    if number is not None:
        after = kind == "AFTER_SEQUENCE_NUMBER"
        return shard.position_of(_own_number(context, number, stream, shard), after=after)
    if kind == "TRIM_HORIZON":
        return shard.first_position
    if kind == "LATEST":
        return shard.end_position
    assert start.timestamp is not None, "check_start raises for a missing timestamp"
    return shard.position_at(millis(start.timestamp))


def _own_number(
    context: Context, text: str, stream: Stream, shard: Shard
) -> sequence.SequenceNumber:
    number = sequence.parse(text)
    used = (
        f"StartingSequenceNumber {text} used in {context.operation} on shard {shard.id} in stream"
    )
    if number is None:
        raise errors.invalid_argument(f"{used} {stream.name} under account {ACCOUNT} is invalid.")
    if number.shard_index != shard.index:
        raise errors.invalid_argument(
            f"Invalid StartingSequenceNumber. It encodes shardId-{number.shard_index:012d}, "
            f"while it was used in a call to a shard with {shard.id}"
        )
    if number.shard_created != shard.born_s:
        raise errors.invalid_argument(
            f"{used} {stream.name} under account {ACCOUNT} is invalid because it did not come "
            "from this stream."
        )
    return number
