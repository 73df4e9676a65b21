"""The operations that read records: GetShardIterator and GetRecords."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.errors import KinesisError
from sparkinesis.local.model import limits
from sparkinesis.local.model.record_page import RecordPage, Records
from sparkinesis.local.model.shard import Shard
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.model.tokens import ShardIterator, seal, unseal
from sparkinesis.local.operations.context import ACCOUNT, Context, Json
from sparkinesis.local.operations.start import check_start, start_position


def get_shard_iterator(context: Context, request: requests.GetShardIterator) -> Json:
    start = requests.StartingPosition(
        request.shard_iterator_type, request.starting_sequence_number, request.timestamp
    )
    check_start(context, start)
    stream = context.find(request.stream_name, request.stream_arn)
    shard = stream.shard(request.shard_id)
    if shard is None or not stream.is_serving:
        raise errors.shard_does_not_exist(request.shard_id, stream.name, ACCOUNT)
    stream.trim(shard, context.now)
    position = start_position(context, start, stream, shard)
    if context.limits is not None and not shard.use.get_iterators.take(
        context.now, 1, context.limits.shard_get_iterators
    ):
        raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)
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
        raise errors.invalid_argument("Invalid ShardIterator.")
    if context.now - token.issued_ms > limits.ITERATOR_LIFE_MS:
        raise KinesisError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created at time {_date(token.issued_ms)} "
            f"while right now it is {_date(context.now)} which is further in the future than "
            f"the tolerated delay of {limits.ITERATOR_LIFE_MS} milliseconds.",
        )
    gone = errors.shard_does_not_exist(token.shard, token.stream, ACCOUNT)
    stream = context.region.stream(token.stream, context.now)
    if stream is None or stream.created_ms != token.stream_created or not stream.is_serving:
        raise gone
    if request.stream_arn is not None and request.stream_arn != stream.arn:
        raise errors.invalid_argument(
            f"StreamARN {request.stream_arn} differs from the stream of the ShardIterator."
        )
    shard = stream.shard(token.shard)
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
        raise errors.shard_throttled(shard.id, stream.name, ACCOUNT)


def _page(context: Context, token: ShardIterator, shard: Shard, limit: int) -> RecordPage:
    waiting = shard.end_position > max(token.position, shard.first_position)
    if token.empty_pages and waiting:
        records, empty_pages = Records(token.position), token.empty_pages - 1
    else:
        records, empty_pages = shard.read(token.position, limit, limits.MAX_GET_BYTES), 0
        shard.use.read_bytes.use(records.bytes)
        context.records, context.bytes = records.count, records.bytes
    position = records.next_position
    rest: Json = {"MillisBehindLatest": shard.millis_behind(position, context.now)}
    ends_later = bool(records.count and context.empty_pages)
    if shard.is_open or position < shard.end_position or ends_later:
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
