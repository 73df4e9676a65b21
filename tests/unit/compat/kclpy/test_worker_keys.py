"""The metrics of a properties file, as exporters of a worker."""

from __future__ import annotations

import logging

import pytest

from sparkinesis import CredentialSource, OptionError
from sparkinesis.metrics import CloudWatchMetrics
from sparkinesis.metrics.metrics import MetricsExporter
from tests.unit.compat.kclpy.test_translation import settings


def exporters(*lines: str) -> tuple[MetricsExporter, ...]:
    return settings("\n".join(lines)).options.metrics


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((), ()),
        (("metricsLevel = none",), ()),
        (("metricsLevel=SUMMARY",), (CloudWatchMetrics(),)),
        (("metricsLevel=Detailed",), (CloudWatchMetrics(level="detailed"),)),
        # Calls are a second apart at least.
        (
            ("metricsLevel=SUMMARY", "metricsBufferTimeMillis=10"),
            (CloudWatchMetrics(flush_every=1.0),),
        ),
    ],
)
def test_a_level_publishes_without_shards_and_nothing_is_published_without(
    lines: tuple[str, ...], found: tuple[MetricsExporter, ...]
) -> None:
    assert exporters(*lines) == found


@pytest.mark.parametrize(
    ("value", "shards", "workers"),
    [
        ("ALL", True, True),
        ("Operation", False, False),
        ("Operation,ShardId", True, False),
        (" Operation , WorkerIdentifier ", False, True),
        ("ShardId,WorkerIdentifier,StreamId", True, True),
    ],
)
def test_dimensions_are_those_that_are_enabled(value: str, shards: bool, workers: bool) -> None:
    found = exporters("metricsLevel=SUMMARY", f"metricsEnabledDimensions={value}")
    assert found == (CloudWatchMetrics(shard_metrics=shards, worker_metrics=workers),)


def test_every_key() -> None:
    found = exporters(
        "metricsLevel=DETAILED",
        "metricsBufferTimeMillis=5000",
        "metricsMaxQueueSize=500",
        "cloudWatchEndpoint=https://vpce-1.monitoring.example.com",
        "AwsCredentialsProviderCloudWatch=ProfileCredentialsProvider|ops",
    )
    assert found == (
        CloudWatchMetrics(
            level="detailed",
            flush_every=5.0,
            max_series=500,
            endpoint="https://vpce-1.monitoring.example.com",
            credentials=CredentialSource(profile="ops"),
        ),
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("metricsLevel=ALL", "is 'ALL'; must be NONE, SUMMARY or DETAILED"),
        ("metricsEnabledDimensions=Shard", "is 'Shard'; must be ALL, or a list of Operation"),
        ("metricsEnabledDimensions=,", "is ','; must be ALL"),
        ("metricsBufferTimeMillis=0", "is '0'; must be a whole number of milliseconds"),
        ("metricsMaxQueueSize=0", "is '0'; must be a whole number from 1"),
        ("cloudWatchEndpoint=monitoring", "is 'monitoring'; must be a URL"),
    ],
)
def test_a_bad_value_is_named(line: str, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        exporters(line)
    assert f"my.properties, line 3: {line.partition('=')[0]} {why}" in str(caught.value)


def test_keys_without_a_level_have_no_effect_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert exporters("metricsEnabledDimensions=ALL") == ()
    assert caplog.records[-1].message.endswith("are ignored: metricsEnabledDimensions.")
    caplog.clear()
    exporters("metricsLevel=NONE", "metricsEnabledDimensions=ALL")
    assert caplog.records == []
