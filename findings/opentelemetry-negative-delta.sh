#!/usr/bin/env bash
# OpenTelemetry's SDK for Python exports negative increments of a counter that only grows, when its source begins anew.
#
# Expected: an observable counter that was read as 10 and then as 3 has begun anew, so the increment is 3, and never negative.
# opentelemetry-sdk 1.45.2, seen on 2026-11-29: with delta temporality the increment is -7, in a sum that says that
# it is monotonic. The sum of all increments is the last value read, 4, although 10 + 4 were counted. With the cumulative
# temporality 10, 3 and 4 are exported with one start time, so that a reader sees no new beginning either.
# Hurt: whoever exports deltas of a counter of another thing (a child process, a connection, a client that is made anew). What
# is counted before each new beginning is subtracted again.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check opentelemetry-sdk==1.45.2
"$work/venv/bin/python" - <<'PY'
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader


def exported(temporality):
    reader = InMemoryMetricReader(preferred_temporality={ObservableCounter: temporality})
    counted = 0
    MeterProvider([reader]).get_meter("m").create_observable_counter("records", [lambda _: [Observation(counted)]])
    values, starts = [], set()
    for counted in (10, 3, 4):
        (scopes,) = reader.get_metrics_data().resource_metrics
        (metric,) = scopes.scope_metrics[0].metrics
        (point,) = metric.data.data_points
        assert metric.data.is_monotonic
        values.append(point.value)
        starts.add(point.start_time_unix_nano)
    return values, len(starts)


for temporality in (AggregationTemporality.DELTA, AggregationTemporality.CUMULATIVE):
    values, starts = exported(temporality)
    print(f"{temporality.name}: 10, 3, 4 are exported as {values}, with {starts} start times")
    expected = ([10, -7, 1], 3) if temporality is AggregationTemporality.DELTA else ([10, 3, 4], 1)
    assert (values, starts) == expected, (values, starts)
PY
