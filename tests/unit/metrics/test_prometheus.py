"""What Prometheus reads is what was counted, by its own library's parsers of both formats."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from sparkinesis.metrics.catalogue import (
    BATCHES_FAILED,
    FLEET_WANTED,
    LAG,
    PROCESS_DURATION,
    QUERY_LAG_MAX,
    RECORDS_PROCESSED,
    SCRAPED,
)
from sparkinesis.metrics.metric import Kind, Metric
from sparkinesis.metrics.metrics import Sample
from sparkinesis.metrics.prometheus import exposition
from sparkinesis.metrics.tally import BUCKETS, Series, Tally

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus sends."""

ORDER = ("application", "worker", "query", "stream", "shard", "result", "action", "le")
"""The text itself has labels in the order of the alphabet."""

A = {"application": "app", "worker": "a"}
B = {"application": "app", "worker": "b"}

Parse = Callable[[str], Iterable[Family]]
FORMATS = pytest.mark.parametrize(
    ("accept", "parse"), [(OPENMETRICS, parse_openmetrics), ("", parse_text)]
)


def scraped(
    groups: list[tuple[dict[str, str], list[Series]]],
    accept: str = OPENMETRICS,
    parse: Parse = parse_openmetrics,
) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by name and by the values of the labels, which are in `ORDER`."""
    body, content_type = exposition(groups, accept)
    is_open = parse is parse_openmetrics
    kind = "application/openmetrics-text; version=1.0.0" if is_open else "text/plain; version=0.0.4"
    assert content_type.startswith(kind)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            labels = sample.labels
            key = tuple(labels[name] for name in sorted(labels, key=ORDER.index))
            assert key not in values, "no series is told twice"
            values[key] = sample.value
    return found


@FORMATS
def test_each_kind_is_told_with_the_labels_of_its_scope(accept: str, parse: Parse) -> None:
    tally = Tally()
    tally.add(RECORDS_PROCESSED, ("flights", "shard-0"), 7)
    tally.add(RECORDS_PROCESSED, ("flights", "shard-1"), 5)
    for seconds in (0.001, 0.02, 400.0):
        tally.observe(PROCESS_DURATION, ("flights", "shard-0", "ok"), seconds)
    tally.watch(lambda: [Sample(LAG, ("flights", "shard-0"), 2.5)])
    found = scraped([(A, tally.series())], accept, parse)
    assert found["sparkinesis_records_processed_total"] == {("app", "a", "flights"): 12}
    assert found["sparkinesis_lag_seconds"] == {("app", "a", "flights", "shard-0"): 2.5}
    name = "sparkinesis_process_records_duration_seconds"
    labels = ("app", "a", "flights", "ok")
    assert found[f"{name}_count"] == {labels: 3}
    assert found[f"{name}_sum"] == {labels: pytest.approx(400.021)}
    buckets = {float(key[-1]): value for key, value in found[f"{name}_bucket"].items()}
    assert list(buckets) == [*BUCKETS, float("inf")]
    assert (buckets[0.001], buckets[0.01], buckets[0.025], buckets[300]) == (1, 1, 2, 2)
    assert buckets[float("inf")] == 3


@FORMATS
def test_workers_a_fleet_and_a_query_share_one_answer(accept: str, parse: Parse) -> None:
    """A family is told once, however many workers have it: two of a name are an error."""
    groups = [
        (scope, [Series("records.processed", ("s",), count)])
        for scope, count in ((A, 1.0), (B, 2.0))
    ]
    groups.append(({"application": "app"}, [Series(FLEET_WANTED.name, (), 3.0)]))
    groups.append(({"query": "q"}, [Series(QUERY_LAG_MAX.name, ("s",), 4.0)]))
    body, _ = exposition(groups, accept)
    assert body.decode().count("# TYPE sparkinesis_records_processed") == 1
    assert scraped(groups, accept, parse) == {
        "sparkinesis_records_processed_total": {("app", "a", "s"): 1, ("app", "b", "s"): 2},
        "sparkinesis_fleet_workers_wanted": {("app",): 3},
        "sparkinesis_query_lag_max_seconds": {("q", "s"): 4},
    }


def test_two_workers_of_one_id_add_up_and_the_newer_gauge_counts() -> None:
    first, second = Tally(), Tally()
    for tally, amount in ((first, 3), (second, 4)):
        tally.add(BATCHES_FAILED, ("s", "shard", "retry"), amount)
        tally.observe(PROCESS_DURATION, ("s", "shard", "ok"), amount)
    first.watch(lambda: [Sample(LAG, ("s", "shard"), 30)])
    second.watch(lambda: [Sample(LAG, ("s", "shard"), 10)])
    found = scraped([(A, first.series()), (A, second.series())])
    assert found["sparkinesis_batches_failed_total"] == {("app", "a", "s", "retry"): 7}
    assert found["sparkinesis_lag_seconds"] == {("app", "a", "s", "shard"): 10}
    name = "sparkinesis_process_records_duration_seconds"
    assert found[f"{name}_count"] == {("app", "a", "s", "ok"): 2}
    assert found[f"{name}_sum"] == {("app", "a", "s", "ok"): 7}
    assert found[f"{name}_bucket"][("app", "a", "s", "ok", "5.0")] == 2


def test_a_metric_of_another_version_is_left_out() -> None:
    groups = [(A, [Series("new.in.two.years", ("x",), 1.0), Series("leases.held", (), 1.0)])]
    assert scraped(groups) == {"sparkinesis_leases_held": {("app", "a"): 1}}
    assert scraped([]) == {}


@pytest.mark.parametrize("metric", SCRAPED, ids=lambda metric: metric.name)
def test_every_metric_can_be_told(metric: Metric) -> None:
    tally = Tally()
    labels = tuple(f"its {label}" for label in metric.labels)
    if metric.kind is Kind.COUNTER:
        tally.add(metric, labels)
    elif metric.kind is Kind.HISTOGRAM:
        tally.observe(metric, labels, 1.0)
    else:
        tally.watch(lambda: [Sample(metric, labels, 1.0)])
    scope = {label: f"its {label}" for label in metric.scope.labels}
    body, _ = exposition([(scope, tally.series())], OPENMETRICS)
    parse: Parse = parse_openmetrics
    (family,) = parse(body.decode())
    assert family.type == metric.kind.value
    assert family.documentation == metric.help
    told = dict(family.samples[0].labels)
    told.pop("le", None)
    assert told == {
        label: f"its {label}" for label in (*metric.scope.labels, *metric.series_labels)
    }


def test_a_multi_process_collector_has_none_of_our_metrics_and_the_registry_has_them(
    tmp_path: Path,
) -> None:
    program = """
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from sparkinesis.metrics import PrometheusMetrics
from sparkinesis.metrics.catalogue import RECORDS_PROCESSED
from sparkinesis.metrics.metric import Measured

Counter("theirs", "of the application").inc()
worker = PrometheusMetrics().open(Measured.worker("app", "w"))
worker.add(RECORDS_PROCESSED, ("s", "shard"), 10)
of_all = CollectorRegistry()
MultiProcessCollector(of_all)
shown = [b"records_processed" in generate_latest(one) for one in (of_all, REGISTRY)]
print(shown, b"theirs_total 1.0" in generate_latest(of_all))
"""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    seen = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert seen.stdout == "[False, True] True\n"
