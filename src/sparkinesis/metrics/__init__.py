"""The exporters of metrics: what `WorkerOptions.metrics` and `sparkinesis.watch` take.

- `PrometheusMetrics`: a registry of prometheus_client, which the application serves or pushes
- `OpenTelemetryMetrics`: metrics and spans by the SDK that the application sets up
- `CloudWatchMetrics`: CloudWatch, by PutMetricData, with the names of the KCL for Java
- `EmfMetrics`: lines of the CloudWatch embedded metric format, for CloudWatch Logs

An exporter of your own implements `MetricsExporter`; `Measured` names the worker, fleet or query.
``docs/metrics.md`` lists the metrics and their name in each system.
"""

# In this folder: `catalogue` lists each `metric`; `metrics` gives a measurement to all systems,
# reads gauges, takes time and opens spans. Systems: `tally` in memory, `prometheus`,
# `opentelemetry` with its `instruments` and `spans`, `cloudwatch`. `repeats` thins out repeated
# logs, `health` serves pages.
#
# A new metric is an entry of `catalogue`; all systems have it from there. A counter is added by
# the table of `worker/reporting/event_log` if an event says it, else where it happens; a shard's
# histogram is observed by a method of `worker/reporting/shard_reporter`. A shard's gauge is a field
# of `ShardStatus` that `worker/reporting/gauges` reads. `agree()` of test_metrics.py counts what a
# worker measures. Then `python -m tests.unit.metrics.catalogue_table --write` brings the table of
# docs/metrics.md up to date, and `make bench ARGS=scrape` that of docs/deploy.md. Only metrics that
# people look at first have a panel or an alert in deploy/.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkinesis.metrics.cloudwatch.emf import EmfMetrics
    from sparkinesis.metrics.metric import Measured
    from sparkinesis.metrics.metrics import MetricsExporter
    from sparkinesis.metrics.opentelemetry import OpenTelemetryMetrics
    from sparkinesis.metrics.prometheus import PrometheusMetrics
    from sparkinesis.worker.reporting.cloudwatch import CloudWatchMetrics

__all__ = [
    "CloudWatchMetrics",
    "EmfMetrics",
    "Measured",
    "MetricsExporter",
    "OpenTelemetryMetrics",
    "PrometheusMetrics",
]

_HOMES = {
    "CloudWatchMetrics": "worker.reporting.cloudwatch",
    "EmfMetrics": "metrics.cloudwatch.emf",
    "Measured": "metrics.metric",
    "MetricsExporter": "metrics.metrics",
    "OpenTelemetryMetrics": "metrics.opentelemetry",
    "PrometheusMetrics": "metrics.prometheus",
}
"""Inner modules of the names. Imported lazily: each exporter imports its system's package."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"sparkinesis.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
