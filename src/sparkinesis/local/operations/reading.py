"""The operations that read records: GetShardIterator, GetRecords and SubscribeToShard."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.encoding.requests import StartingPosition
from sparkinesis.local.model import limits
from sparkinesis.local.model.records import ReadRecords, RecordPage
from sparkinesis.local.model.registered_consumer import ServedSubscription
from sparkinesis.local.model.shard_log import SequenceNumber, Shard, parse_sequence_number
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.model.tokens import ShardIterator, seal, unseal
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, millis
from sparkinesis.local.operations.registration import find_consumer
from sparkinesis.local.service_errors import KinesisError


def get_shard_iterator(context: Context, request: requests.GetShardIterator) -> Json:
    start = requests.StartingPosition(
        request.shard_iterator_type, request.starting_sequence_number, request.timestamp
    )
    _check_start(context, start)
    stream = context.find(request.stream_name, request.stream_arn)
    shard = stream.key_space.get(request.shard_id)
    if shard is None or not stream.is_serving:
        raise service_errors.shard_does_not_exist(request.shard_id, stream.name, ACCOUNT)
    stream.trim(shard, context.now)
    position = _start_position(context, start, stream, shard)
    if context.limits is not None and not shard.use.get_iterators.take(
        context.now, 1, context.limits.shard_get_iterators
    ):
        raise service_errors.shard_throttled(shard.id, stream.name, ACCOUNT)
    context.end_dry_run(request.dry_run, stream)
    token = ShardIterator(
        context.now,
        context.region.name,
        stream.name,
        stream.created_ms,
        shard.id,
        position,
        context.empty_pages,
    )
    return {"ShardIterator": seal(token)}


def get_records(context: Context, request: requests.GetRecords) -> RecordPage:
    token = unseal(request.shard_iterator, ShardIterator)
    if token is None or token.region != context.region.name:
        raise service_errors.invalid_argument("Invalid ShardIterator.")
    if context.now - token.issued_ms > limits.ITERATOR_LIFE_MS:
        raise KinesisError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created at time {_date(token.issued_ms)} "
            f"while right now it is {_date(context.now)} which is further in the future than "
            f"the tolerated delay of {limits.ITERATOR_LIFE_MS} milliseconds.",
        )
    gone = service_errors.shard_does_not_exist(token.shard, token.stream, ACCOUNT)
    stream = context.region.stream(token.stream, context.now)
    if stream is None or stream.created_ms != token.stream_created or not stream.is_serving:
        raise gone
    if request.stream_arn is not None and request.stream_arn != stream.arn:
        raise service_errors.invalid_argument(
            f"StreamARN {request.stream_arn} differs from the stream of the ShardIterator."
        )
    shard = stream.key_space.get(token.shard)
    if shard is None:
        raise gone
    stream.trim(shard, context.now)
    _meter_read(context, stream, shard)
    context.end_dry_run(request.dry_run, stream)
    return _page(context, token, shard, request.limit or limits.MAX_RECORDS_PER_GET)


def _meter_read(context: Context, stream: Stream, shard: Shard) -> None:
    quota = context.limits
    if quota is not None and not (
        shard.use.read_bytes.has_quota(context.now, quota.shard_read_bytes)
        and shard.use.get_records.take(context.now, 1, quota.shard_get_records)
    ):
        raise service_errors.shard_throttled(shard.id, stream.name, ACCOUNT)


def _page(context: Context, token: ShardIterator, shard: Shard, limit: int) -> RecordPage:
    waiting = shard.log.end_position > max(token.position, shard.log.first_position)
    if token.empty_pages and waiting:
        records, empty_pages = ReadRecords(token.position), token.empty_pages - 1
    else:
        records, empty_pages = shard.log.read(token.position, limit, limits.MAX_GET_BYTES), 0
        shard.use.read_bytes.use(records.bytes)
        context.records, context.bytes = records.count, records.bytes
    position = records.next_position
    rest: Json = {"MillisBehindLatest": shard.millis_behind(position, context.now)}
    ends_later = bool(records.count and context.empty_pages)
    if shard.is_open or position < shard.log.end_position or ends_later:
        following = msgspec.structs.replace(
            token, issued_ms=context.now, position=position, empty_pages=empty_pages
        )
        rest["NextShardIterator"] = seal(following)
    else:
        rest["ChildShards"] = shard.child_shards
    for name in context.fault.omit:
        rest.pop(name, None)
    return RecordPage(records, rest)


def _date(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc)
    return moment.strftime("%a %b %d %H:%M:%S UTC %Y")


def subscribe_to_shard(context: Context, request: requests.SubscribeToShard) -> ServedSubscription:
    start = request.starting_position
    _check_start(context, start)
    stream, consumer = find_consumer(context, request.consumer_arn)
    status = consumer.status(context.now)
    if status != "ACTIVE":
        raise KinesisError(
            "ResourceInUseException",
            f"Consumer {consumer.name}, stream {stream.name} under account {ACCOUNT} not ACTIVE, "
            f"instead in state {status}",
        )
    shard = stream.key_space.get(request.shard_id)
    if shard is None:
        raise service_errors.shard_does_not_exist(request.shard_id, stream.name, ACCOUNT)
    stream.trim(shard, context.now)
    position = _start_position(context, start, stream, shard)
    if not consumer.may_subscribe(shard.id, context.now, context.limits):
        raise KinesisError(
            "ResourceInUseException",
            f"Another active subscription exists for this consumer: {ACCOUNT}:{stream.name}:"
            f"{consumer.name}:{shard.id}",
        )
    context.end_dry_run(request.dry_run, stream)
    subscription = ServedSubscription(
        context.region.name,
        stream,
        shard,
        position,
        on_close=consumer.forget,
        now=context.now,
        fault=context.fault,
    )
    consumer.take_over(subscription, context.now)
    return subscription


def _check_start(context: Context, start: StartingPosition) -> None:
    """Raise KinesisError if the parts of a start do not belong together, in any stream."""
    kind, number = start.type, start.sequence_number
    by_number = kind in {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"}
    if by_number != (number is not None):
        given = "also a" if number is not None else "no"
        raise service_errors.invalid_argument(
            "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and "
            "StartingSequenceNumber or (2) TRIM_HORIZON or LATEST and no "
            f"StartingSequenceNumber. Request specified {kind} and {given} "
            "StartingSequenceNumber."
        )
    if kind != "AT_TIMESTAMP":
        return
    if start.timestamp is None:
        raise service_errors.invalid_argument(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter."
        )
    time_ms = millis(start.timestamp)
    if time_ms > context.now:
        raise service_errors.invalid_argument(
            "The timestampInMillis parameter cannot be greater than the "
            f"currentTimestampInMillis. timestampInMillis: {time_ms}, "
            f"currentTimestampInMillis: {context.now}"
        )


def _start_position(context: Context, start: StartingPosition, stream: Stream, shard: Shard) -> int:
    """Return the position in the shard where a read starts. Raises: KinesisError."""
    position = _requested_position(context, start, stream, shard)
    return max(position - context.fault.begins_early, min(position, shard.log.first_position))


def _requested_position(
    context: Context, start: StartingPosition, stream: Stream, shard: Shard
) -> int:
    kind, number = start.type, start.sequence_number
    if number is not None:
        after = kind == "AFTER_SEQUENCE_NUMBER"
        return shard.log.position_of(_own_number(context, number, stream, shard), after=after)
    if kind == "TRIM_HORIZON":
        return shard.log.first_position
    if kind == "LATEST":
        return shard.log.end_position
    assert start.timestamp is not None, "check_start raises for a missing timestamp"
    return shard.log.position_at(millis(start.timestamp))


def _own_number(context: Context, text: str, stream: Stream, shard: Shard) -> SequenceNumber:
    number = parse_sequence_number(text)
    used = (
        f"StartingSequenceNumber {text} used in {context.operation} on shard {shard.id} in stream"
    )
    if number is None:
        raise service_errors.invalid_argument(
            f"{used} {stream.name} under account {ACCOUNT} is invalid."
        )
    if number.shard_index != shard.index:
        raise service_errors.invalid_argument(
            f"Invalid StartingSequenceNumber. It encodes shardId-{number.shard_index:012d}, "
            f"while it was used in a call to a shard with {shard.id}"
        )
    if number.shard_created != shard.born_s:
        raise service_errors.invalid_argument(
            f"{used} {stream.name} under account {ACCOUNT} is invalid because it did not come "
            "from this stream."
        )
    return number
