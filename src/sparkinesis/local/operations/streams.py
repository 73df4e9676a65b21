"""The operations on streams: create, delete, describe, list; retention and tags."""

from __future__ import annotations

from sparkinesis.local import errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.errors import KinesisError
from sparkinesis.local.model import limits
from sparkinesis.local.model.stream import BY_PARTITION_KEY, MAX_RETENTION_HOURS, Stream
from sparkinesis.local.model.subscription import Failure
from sparkinesis.local.model.tokens import ListStreamsToken, seal
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, resume
from sparkinesis.local.operations.conversions import shard_json

_ON_DEMAND_SHARDS = 4
_MIN_RETENTION_HOURS = 24


def create_stream(context: Context, request: requests.CreateStream) -> None:
    details = request.stream_mode_details
    mode = details.stream_mode if details is not None else "PROVISIONED"
    count = request.shard_count
    if mode == "ON_DEMAND":
        if count is not None:
            raise errors.invalid_argument(
                "ShardCount must not be set for a stream in ON_DEMAND mode."
            )
        count = _ON_DEMAND_SHARDS
    if count is None:
        raise errors.validation(
            validation.violation("null", "shardCount", "Member must not be null")
        )
    strategy = request.record_distribution_strategy or BY_PARTITION_KEY
    _check_distribution(mode, strategy)
    name, region = request.stream_name, context.region
    if name in region.streams:
        raise KinesisError(
            "ResourceInUseException", f"Stream {name} under account {ACCOUNT} already exists."
        )
    kib = request.max_record_size_in_kib
    stream = Stream(
        name,
        f"arn:aws:kinesis:{region.name}:{ACCOUNT}:stream/{name}",
        count,
        mode=mode,
        created_ms=context.now,
        born_s=max(context.now // 1000, region.born_before.get(name, 0) + 1),
        max_record_bytes=kib * 1024 if kib else limits.MAX_RECORD_BYTES,
    )
    stream.distribution = strategy
    stream.tags.update(request.tags or {})
    region.streams[name] = stream


def update_distribution(
    context: Context, request: requests.UpdateStreamRecordDistributionStrategy
) -> None:
    stream = context.find(None, request.stream_arn, active=True)
    _check_distribution(stream.mode, request.record_distribution_strategy)
    stream.distribution = request.record_distribution_strategy


def _check_distribution(mode: str, strategy: str) -> None:
    if mode != "ON_DEMAND" and strategy != BY_PARTITION_KEY:
        raise errors.invalid_argument(
            f"RecordDistributionStrategy {strategy} requires ON_DEMAND mode; the stream is in "
            f"{mode} mode."
        )


def delete_stream(context: Context, request: requests.DeleteStream) -> None:
    stream = context.find(request.stream_name, request.stream_arn)
    if stream.consumers and not request.enforce_consumer_deletion:
        raise KinesisError(
            "ResourceInUseException",
            f"Stream {stream.name} under account {ACCOUNT} has registered consumers; "
            "set EnforceConsumerDeletion to delete it.",
        )
    context.region.born_before[stream.name] = stream.last_born_s
    del context.region.streams[stream.name]
    gone = errors.stream_not_found(stream.name, ACCOUNT)
    for consumer in stream.consumers.values():
        consumer.fail_subscriptions(Failure(gone.code, gone.message))


def describe_stream(context: Context, request: requests.DescribeStream) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    after = request.exclusive_start_shard_id or ""
    shards = [shard for shard in stream.shards if shard.id > after]
    limit = request.limit or 100
    return {
        "StreamDescription": {
            **_stream_summary(stream),
            "Shards": [shard_json(shard) for shard in shards[:limit]],
            "HasMoreShards": len(shards) > limit,
            "RetentionPeriodHours": stream.retention_hours,
            "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
            "EncryptionType": "NONE",
        }
    }


def describe_stream_summary(context: Context, request: requests.DescribeStreamSummary) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    return {
        "StreamDescriptionSummary": {
            **_stream_summary(stream),
            "RetentionPeriodHours": stream.retention_hours,
            "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
            "EncryptionType": "NONE",
            "OpenShardCount": len(stream.open_shards),
            "ConsumerCount": len(stream.consumers),
            "MaxRecordSizeInKiB": stream.max_record_bytes // 1024,
            **_distribution(stream),
        }
    }


def list_streams(context: Context, request: requests.ListStreams) -> Json:
    after = request.exclusive_start_stream_name or ""
    if request.next_token is not None:
        after = resume(request.next_token, ListStreamsToken, context.now).after_stream
    streams = sorted(
        (s for s in context.region.streams.values() if s.name > after), key=lambda s: s.name
    )
    page = streams[: request.limit or 100]
    for stream in page:
        stream.settle(context.now)
    answer: Json = {
        "StreamNames": [stream.name for stream in page],
        "StreamSummaries": [_stream_summary(stream) for stream in page],
        "HasMoreStreams": len(streams) > len(page),
    }
    if len(streams) > len(page):
        answer["NextToken"] = seal(ListStreamsToken(context.now, page[-1].name))
    return answer


def increase_retention(context: Context, request: requests.RetentionPeriod) -> None:
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    hours = request.retention_period_hours
    if hours > MAX_RETENTION_HOURS:
        raise errors.invalid_argument(
            f"Maximum allowed retention period is {MAX_RETENTION_HOURS} hours. "
            f"Requested retention period ({hours} hours) is too long."
        )
    if hours < stream.retention_hours:
        raise errors.invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"shorter than existing retention period ({stream.retention_hours} hours). "
            "Use DecreaseRetentionPeriod API."
        )
    stream.set_retention(hours, context.now)


def decrease_retention(context: Context, request: requests.RetentionPeriod) -> None:
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    hours = request.retention_period_hours
    if hours > stream.retention_hours:
        raise errors.invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"longer than existing retention period ({stream.retention_hours} hours). "
            "Use IncreaseRetentionPeriod API."
        )
    if hours < _MIN_RETENTION_HOURS:
        raise errors.invalid_argument(
            f"Minimum allowed retention period is {_MIN_RETENTION_HOURS} hours. "
            f"Requested retention period ({hours} hours) is too short."
        )
    stream.set_retention(hours, context.now)


def add_tags(context: Context, request: requests.AddTagsToStream) -> None:
    stream = context.find(request.stream_name, request.stream_arn)
    stream.tags.update(request.tags)


def remove_tags(context: Context, request: requests.RemoveTagsFromStream) -> None:
    stream = context.find(request.stream_name, request.stream_arn)
    for key in request.tag_keys:
        stream.tags.pop(key, None)


def list_tags(context: Context, request: requests.ListTagsForStream) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    after = request.exclusive_start_tag_key or ""
    keys = [key for key in sorted(stream.tags) if key > after]
    page = keys[: request.limit or 50]
    return {
        "Tags": [{"Key": key, "Value": stream.tags[key]} for key in page],
        "HasMoreTags": len(keys) > len(page),
    }


def _distribution(stream: Stream) -> Json:
    if stream.mode != "ON_DEMAND":
        return {}
    return {"RecordDistributionStrategy": stream.distribution}


def _stream_summary(stream: Stream) -> Json:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.mode},
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }
