#!/usr/bin/env bash
# OpenTelemetry's SDK for Python counts series that are long gone, and then drops all series of an observable gauge.
#
# Expected: an observable gauge exports what its callback returns, here 100 series at a time.
# opentelemetry-sdk 1.45.2, seen on 2026-11-29: an instrument has at most 2,000 sets of attributes for each reader. A set
# that a callback has returned once counts until the process ends, although it is not exported any more: if each
# collection returns 100 new series, the 21st and all later ones export one point, with the attribute
# otel.metric.overflow and the value of one of the 100. Nothing is logged. OpenTelemetry's specification has the limit keep
# the first attributes of the callback, for an asynchronous instrument.
# PeriodicExportingMetricReader(..., cardinality_limits={ObservableGauge: ...}) moves the limit, and Counter likewise.
# Hurt: whoever has a gauge for each thing that comes and goes, such as a shard, a partition, a pod or a query: after 2,000
# of them the alert on its value sees none of them, until the process is started anew.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check opentelemetry-sdk==1.45.2
"$work/venv/bin/python" - <<'PY'
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.export import InMemoryMetricReader


def exported(limits):
    """The number of points of each of 30 collections; the last collection's points."""
    first = 0
    reader = InMemoryMetricReader(cardinality_limits=limits)

    def lags(_):
        return [Observation(60, {"shard": f"shardId-{shard:012d}"}) for shard in range(first, first + 100)]

    MeterProvider([reader]).get_meter("application").create_observable_gauge("lag", [lags])
    counts, points = [], []
    for first in range(0, 3000, 100):
        (scopes,) = reader.get_metrics_data().resource_metrics
        points = scopes.scope_metrics[0].metrics[0].data.data_points
        counts.append(len(points))
    return counts, [dict(point.attributes) for point in points]


counts, last = exported(None)
print("points of 30 collections, each of 100 new series:", *counts)
print("the last collection:", last)
assert counts == 20 * [100] + 10 * [1] and last == [{"otel.metric.overflow": True}], counts
counts, last = exported({ObservableGauge: 1_000_000})
print("with a limit of a million:", *counts)
assert counts == 30 * [100]
PY
