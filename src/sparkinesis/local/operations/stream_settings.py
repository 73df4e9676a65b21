"""The operations that change a stream's settings: all but tags and policies.

While a change takes effect, the stream is UPDATING: it refuses other changes and serves records.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.model.stream import (
    BY_PARTITION_KEY,
    MAX_RETENTION_HOURS,
    ON_DEMAND,
    Stream,
)
from sparkinesis.local.operations import account
from sparkinesis.local.operations.context import Context, Json

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
        "CurrentShardLevelMetrics": listed(stream.settings.metrics),
        "DesiredShardLevelMetrics": listed(desired),
    }
    _change(context, stream, lambda _: setattr(stream.settings, "metrics", desired))
    return answer


def listed(metrics: Iterable[str]) -> list[str]:
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
        "WarmThroughput": warm_throughput_json(stream),
    }


def warm_throughput_json(stream: Stream) -> Json:
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
    check_distribution(stream.settings.mode, request.record_distribution_strategy)
    stream.settings.distribution = request.record_distribution_strategy


def check_distribution(mode: str, strategy: str) -> None:
    if mode != ON_DEMAND and strategy != BY_PARTITION_KEY:
        raise service_errors.invalid_argument(
            f"RecordDistributionStrategy {strategy} requires ON_DEMAND mode; the stream is in "
            f"{mode} mode."
        )


def _change(context: Context, stream: Stream, apply: Callable[[int], None]) -> None:
    stream.change(apply, context.now, context.delays.stream_ms)
