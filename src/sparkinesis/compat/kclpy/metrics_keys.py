"""The metrics of a properties file: ``metricsLevel``, ``metricsEnabledDimensions`` and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparkinesis.compat.kclpy import property_values as values
from sparkinesis.compat.kclpy.credential_provider import credential_provider

if TYPE_CHECKING:
    from sparkinesis.worker.reporting.cloudwatch import CloudWatchMetrics

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


KEYS = {
    "metricsLevel": values.choice("NONE", "SUMMARY", "DETAILED"),
    "metricsEnabledDimensions": dimensions,
    "metricsBufferTimeMillis": values.millis(1),
    "metricsMaxQueueSize": values.integer(1),
    "cloudWatchEndpoint": values.endpoint,
    **dict.fromkeys(_CREDENTIALS, credential_provider),
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
