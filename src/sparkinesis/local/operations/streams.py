"""The operations on streams: create, delete, describe, list, and change the settings.

Tags and policies are in `resources`. While a change takes effect, the stream is UPDATING: it
refuses other changes and serves records.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model import limits
from sparkinesis.local.model.registered_consumer import ExceptionEvent
from sparkinesis.local.model.stream import (
    BY_PARTITION_KEY,
    MAX_RETENTION_HOURS,
    ON_DEMAND,
    ON_DEMAND_SHARDS,
    Stream,
    warm_shards,
)
from sparkinesis.local.model.tokens import ListStreamsToken, seal
from sparkinesis.local.operations import account
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, resume, shard_json
from sparkinesis.local.service_errors import KinesisError

# Of streams, and of shards in DescribeStream: "at most 100 results are returned", whatever Limit.
_MOST_LISTED = 100


def create_stream(context: Context, request: requests.CreateStream) -> None:
    details = request.stream_mode_details
    mode = details.stream_mode if details is not None else "PROVISIONED"
    count, warm = request.shard_count, request.warm_throughput_mibps
    if mode == ON_DEMAND:
        if count is not None:
            raise service_errors.invalid_argument(
                "ShardCount must not be set for a stream in ON_DEMAND mode."
            )
        count = ON_DEMAND_SHARDS if warm is None else warm_shards(warm)
    if count is None:
        raise service_errors.validation(
            validation.violation("null", "shardCount", "Member must not be null")
        )
    strategy = request.record_distribution_strategy or BY_PARTITION_KEY
    _check_distribution(mode, strategy)
    name, region = request.stream_name, context.region
    validation.check_tags(f"stream {name} under account {ACCOUNT}", request.tags or {}, {})
    if warm is not None:
        account.check_warm_throughput(context, name, mode, warm)
    region.all_streams(context.now)
    if name in region.streams:
        raise KinesisError(
            "ResourceInUseException", f"Stream {name} under account {ACCOUNT} already exists."
        )
    account.check_new_stream(context, mode, count)
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
    stream.settings.distribution = strategy
    stream.tags.update(request.tags or {})
    stream.settings.warm_mibps = stream.settings.warm_target_mibps = warm
    stream.create(context.now, context.delays.stream_ms)
    region.streams[name] = stream


def delete_stream(context: Context, request: requests.DeleteStream) -> None:
    stream = context.find(request.stream_name, request.stream_arn)
    if stream.status not in {"ACTIVE", "CREATING"}:
        raise service_errors.not_active(stream.name, ACCOUNT, stream.status)
    if stream.consumers and not request.enforce_consumer_deletion:
        raise KinesisError(
            "ResourceInUseException",
            f"Stream {stream.name} under account {ACCOUNT} has registered consumers; "
            "set EnforceConsumerDeletion to delete it.",
        )
    account.check_no_queues(context, stream, "the stream is deleted")
    stream.delete(context.now, context.delays.stream_ms)
    gone = service_errors.stream_not_found(stream.name, ACCOUNT)
    for consumer in stream.consumers.values():
        consumer.fail_subscriptions(ExceptionEvent(gone.code, gone.message))
    stream.consumers.clear()
    context.region.all_streams(context.now)


def describe_stream(context: Context, request: requests.DescribeStream) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    after = request.exclusive_start_shard_id or ""
    shards = [shard for shard in stream.shards if shard.id > after and stream.is_serving]
    limit = min(request.limit or _MOST_LISTED, _MOST_LISTED)
    return {
        "StreamDescription": {
            **_stream_summary(stream),
            **_settings(stream),
            "Shards": [shard_json(shard) for shard in shards[:limit]],
            "HasMoreShards": len(shards) > limit,
        }
    }


def describe_stream_summary(context: Context, request: requests.DescribeStreamSummary) -> Json:
    stream = context.find(request.stream_name, request.stream_arn)
    return {
        "StreamDescriptionSummary": {
            **_stream_summary(stream),
            **_settings(stream),
            "OpenShardCount": len(stream.open_shards) if stream.is_serving else 0,
            "ConsumerCount": len(stream.consumers),
            "QueueCount": len(context.region.all_queues(context.now, stream)),
            "ChannelCount": 0,  # none can be made here
            "MaxRecordSizeInKiB": stream.settings.max_record_bytes // 1024,
            **_on_demand_settings(stream),
        }
    }


def list_streams(context: Context, request: requests.ListStreams) -> Json:
    after = request.exclusive_start_stream_name or ""
    if request.next_token is not None:
        after = resume(request.next_token, ListStreamsToken, context.now).after_stream
    streams = [s for s in context.region.all_streams(context.now) if s.name > after]
    page = streams[: min(request.limit or _MOST_LISTED, _MOST_LISTED)]
    answer: Json = {
        "StreamNames": [stream.name for stream in page],
        "StreamSummaries": [_stream_summary(stream) for stream in page],
        "HasMoreStreams": len(streams) > len(page),
    }
    if len(streams) > len(page):
        answer["NextToken"] = seal(ListStreamsToken(context.now, page[-1].name))
    return answer


def _settings(stream: Stream) -> Json:
    """Return the settings that DescribeStream and DescribeStreamSummary show."""
    answer: Json = {
        "RetentionPeriodHours": stream.retention.hours,
        "EnhancedMonitoring": [{"ShardLevelMetrics": _listed(stream.settings.metrics)}],
        "EncryptionType": "NONE",
    }
    if stream.settings.encryption_key is not None:
        answer.update(EncryptionType="KMS", KeyId=stream.settings.encryption_key)
    return answer


def _on_demand_settings(stream: Stream) -> Json:
    if not stream.settings.is_on_demand:
        return {}
    answer: Json = {"RecordDistributionStrategy": stream.settings.distribution}
    if stream.settings.warm_target_mibps is not None:
        answer["WarmThroughput"] = _warm_throughput_json(stream)
    return answer


def _stream_summary(stream: Stream) -> Json:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": stream.settings.mode},
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }


_MIN_RETENTION_HOURS = 24
# All shard-level metrics, in the order of the service model.
_METRICS = (
    "IncomingBytes",
    "IncomingRecords",
    "OutgoingBytes",
    "OutgoingRecords",
    "WriteProvisionedThroughputExceeded",
    "ReadProvisionedThroughputExceeded",
    "IteratorAgeMilliseconds",
)


# Retention


def increase_stream_retention_period(context: Context, request: requests.RetentionPeriod) -> None:
    _set_retention(context, request, operator.lt, "shorter", "Decrease")


def decrease_stream_retention_period(context: Context, request: requests.RetentionPeriod) -> None:
    _set_retention(context, request, operator.gt, "longer", "Increase")


def _set_retention(
    context: Context,
    request: requests.RetentionPeriod,
    is_wrong: Callable[[int, int], bool],
    relation: str,
    other: str,
) -> None:
    hours = _retention_hours(request)
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    if is_wrong(hours, stream.retention.hours):
        raise service_errors.invalid_argument(
            f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
            f"{relation} than existing retention period ({stream.retention.hours} hours). "
            f"Use {other}RetentionPeriod API."
        )
    _change(context, stream, lambda now: stream.set_retention(hours, now))


def _retention_hours(request: requests.RetentionPeriod) -> int:
    hours = request.retention_period_hours
    if hours < _MIN_RETENTION_HOURS:
        raise service_errors.invalid_argument(
            f"Minimum allowed retention period is {_MIN_RETENTION_HOURS} hours. "
            f"Requested retention period ({hours} hours) is too short."
        )
    if hours > MAX_RETENTION_HOURS:
        raise service_errors.invalid_argument(
            f"Maximum allowed retention period is {MAX_RETENTION_HOURS} hours. "
            f"Requested retention period ({hours} hours) is too long."
        )
    return hours


# Encryption: any key is accepted, and nothing is encrypted.


def start_stream_encryption(context: Context, request: requests.StreamEncryption) -> None:
    _encrypt(context, request, request.key_id)


def stop_stream_encryption(context: Context, request: requests.StreamEncryption) -> None:
    _encrypt(context, request, None)


def _encrypt(context: Context, request: requests.StreamEncryption, key: str | None) -> None:
    if request.encryption_type != "KMS":
        raise service_errors.invalid_argument(
            f"EncryptionType {request.encryption_type} is invalid; the only valid value is KMS."
        )
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    _change(context, stream, lambda _: setattr(stream.settings, "encryption_key", key))


# Monitoring


def enable_enhanced_monitoring(context: Context, request: requests.EnhancedMonitoring) -> Json:
    return _monitor(context, request, frozenset.union)


def disable_enhanced_monitoring(context: Context, request: requests.EnhancedMonitoring) -> Json:
    return _monitor(context, request, frozenset.difference)


def _monitor(
    context: Context,
    request: requests.EnhancedMonitoring,
    change: Callable[[frozenset[str], Iterable[str]], frozenset[str]],
) -> Json:
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    named = request.shard_level_metrics
    desired = change(stream.settings.metrics, _METRICS if "ALL" in named else named)
    answer: Json = {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardLevelMetrics": _listed(stream.settings.metrics),
        "DesiredShardLevelMetrics": _listed(desired),
    }
    _change(context, stream, lambda _: setattr(stream.settings, "metrics", desired))
    return answer


def _listed(metrics: Iterable[str]) -> list[str]:
    """Return metrics in the order of the service model."""
    return sorted(metrics, key=_METRICS.index)


# Capacity


def update_stream_mode(context: Context, request: requests.UpdateStreamMode) -> None:
    stream = context.find(None, request.stream_arn, active=True)
    mode, warm = request.stream_mode_details.stream_mode, request.warm_throughput_mibps
    if warm is not None:
        account.check_warm_throughput(context, stream.name, mode, warm)
    if mode != ON_DEMAND:
        account.check_no_queues(context, stream, "its mode becomes PROVISIONED")
    if mode != stream.settings.mode:
        account.check_mode(context, mode, len(stream.open_shards))

    def apply(now: int) -> None:
        stream.settings.set_mode(mode)
        if warm is not None:
            stream.settings.warm_target_mibps = warm
            stream.scale_to(warm, now)

    _change(context, stream, apply)


def update_max_record_size(context: Context, request: requests.UpdateMaxRecordSize) -> None:
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    size = request.max_record_size_in_kib * 1024
    _change(context, stream, lambda _: setattr(stream.settings, "max_record_bytes", size))


def update_stream_warm_throughput(
    context: Context, request: requests.UpdateStreamWarmThroughput
) -> Json:
    stream = context.find(request.stream_name, request.stream_arn, active=True)
    mibps = request.warm_throughput_mibps
    account.check_warm_throughput(context, stream.name, stream.settings.mode, mibps)
    if stream.settings.warm_mibps is None:
        stream.settings.warm_mibps = len(stream.open_shards)
    stream.settings.warm_target_mibps = mibps
    stream.change(lambda now: stream.scale_to(mibps, now), context.now, context.delays.reshard_ms)
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "WarmThroughput": _warm_throughput_json(stream),
    }


def _warm_throughput_json(stream: Stream) -> Json:
    return {
        "TargetMiBps": stream.settings.warm_target_mibps,
        "CurrentMiBps": stream.settings.warm_mibps,
    }


# Distribution of records


def update_stream_record_distribution_strategy(
    context: Context, request: requests.UpdateStreamRecordDistributionStrategy
) -> None:
    """Apply a strategy: at once, as the service does, without UPDATING."""
    stream = context.find(None, request.stream_arn, active=True)
    _check_distribution(stream.settings.mode, request.record_distribution_strategy)
    stream.settings.distribution = request.record_distribution_strategy


def _check_distribution(mode: str, strategy: str) -> None:
    if mode != ON_DEMAND and strategy != BY_PARTITION_KEY:
        raise service_errors.invalid_argument(
            f"RecordDistributionStrategy {strategy} requires ON_DEMAND mode; the stream is in "
            f"{mode} mode."
        )


def _change(context: Context, stream: Stream, apply: Callable[[int], None]) -> None:
    stream.change(apply, context.now, context.delays.stream_ms)
