"""The keys that make one option of a worker together: how it reads, and its metrics.

``retrievalMode`` and ``fanoutConfig.*``; ``metricsLevel``, ``metricsEnabledDimensions`` and others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparkinesis.compat.kclpy import properties
from sparkinesis.worker.aws_options import FanOutOptions

if TYPE_CHECKING:
    from sparkinesis.worker.reporting.cloudwatch import CloudWatchMetrics

RETRIEVAL_KEYS: Mapping[str, Callable[[str], Any]] = {
    "retrievalMode": properties.choice("FANOUT", "POLLING", "DEFAULT"),
    "fanoutConfig.consumerName": properties.name("a consumer name", 1, 128),
    "fanoutConfig.consumerArn": str,
}

_POLLING_KEYS = frozenset({"maxRecords", "idleTimeBetweenReadsInMillis"})


def retrieval_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's options; ``given``: values by key. Raises `OptionError`.

    If ``retrievalMode`` is DEFAULT or absent, the daemon polls if any key of polling is given, and
    else registers a consumer. Here, a consumer also requires a key of enhanced fan-out: consumers
    are billed, so they are only registered on request.
    """
    name, arn = given.get("fanoutConfig.consumerName"), given.get("fanoutConfig.consumerArn")
    mode = given.get("retrievalMode", "DEFAULT")
    if mode == "DEFAULT":
        wants_fan_out = bool(name or arn) and _POLLING_KEYS.isdisjoint(given)
        mode = "FANOUT" if wants_fan_out else "POLLING"
    if mode == "POLLING":
        return {}
    # The ARN takes precedence, as in the daemon.
    fan_out = FanOutOptions(consumer_arn=arn) if arn else FanOutOptions(consumer_name=name)
    return {"retrieval": "efo", "fan_out": fan_out}


DIMENSIONS = ("Operation", "ShardId", "StreamId", "WorkerIdentifier")
"""The dimensions of the daemon; ``Operation`` is always there."""
_ALL = "ALL"

_CREDENTIALS = ("AwsCredentialsProviderCloudWatch", "AWSCredentialsProviderCloudWatch")


def dimensions(value: str) -> frozenset[str]:
    """Parse a list of dimensions, or ``ALL``."""
    names = frozenset(filter(None, (name.strip() for name in value.split(","))))
    unknown = sorted(names - {*DIMENSIONS, _ALL})
    if unknown or not names:
        raise ValueError(f"must be {_ALL}, or a list of {', '.join(DIMENSIONS)}")
    return frozenset(DIMENSIONS) if _ALL in names else names


METRICS_KEYS = {
    "metricsLevel": properties.choice("NONE", "SUMMARY", "DETAILED"),
    "metricsEnabledDimensions": dimensions,
    "metricsBufferTimeMillis": properties.millis(1),
    "metricsMaxQueueSize": properties.integer(1),
    "cloudWatchEndpoint": properties.endpoint,
    **dict.fromkeys(_CREDENTIALS, properties.credential_provider),
}

_SHORTEST_INTERVAL = 1.0


def exporters(given: Mapping[str, Any]) -> tuple[CloudWatchMetrics, ...]:
    """Return the exporters of a worker's metrics; ``given``: values by key.

    CloudWatch bills each metric. So nothing is published without ``metricsLevel``, for which the
    daemon's default is DETAILED; and no shard has metrics of its own without
    ``metricsEnabledDimensions``, for which its default is ALL.
    """
    wanted = given.get("metricsLevel", "NONE")
    if wanted == "NONE":
        return ()
    from sparkinesis.worker.reporting.cloudwatch import CloudWatchMetrics  # noqa: PLC0415 - few use it

    enabled = given.get("metricsEnabledDimensions", {"WorkerIdentifier"})
    options: dict[str, Any] = {
        "level": wanted.lower(),
        "shard_metrics": "ShardId" in enabled,
        "worker_metrics": "WorkerIdentifier" in enabled,
        "endpoint": given.get("cloudWatchEndpoint"),
        "credentials": next((given[key] for key in _CREDENTIALS if key in given), None),
    }
    if "metricsBufferTimeMillis" in given:
        options["flush_every"] = max(_SHORTEST_INTERVAL, given["metricsBufferTimeMillis"])
    if "metricsMaxQueueSize" in given:
        options["max_series"] = given["metricsMaxQueueSize"]
    return (CloudWatchMetrics(**options),)
