"""Measurements get the KCL's names, units, dimensions and levels; docs/metrics.md says which."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparkinesis.metrics import CloudWatchMetrics, EmfMetrics, catalogue
from sparkinesis.metrics.catalogue import CATALOGUE
from sparkinesis.metrics.cloudwatch.data import (
    OWN,
    Datum,
    PublishedMetrics,
    StatisticSet,
    data_of,
    namespace_of,
    namespace_problem,
)
from sparkinesis.metrics.metric import AwsPlace, Level, Measured, Metric
from tests.documents import ROOT
from tests.unit.metrics.cloudwatch.kcl_names import KCL_METRICS, KclMetric

ALL = PublishedMetrics(Level.DETAILED, "w-1", by_shard=True, by_stream=True)
ROWS = re.findall(
    r"^\| (\w+) \| (`[^|]+`) \| (summary|detailed) \| (.+) \|$",
    (ROOT / "docs" / "metrics.md").read_text("utf-8"),
    re.MULTILINE,
)


def label_sets(metric: Metric) -> Iterator[tuple[str, ...]]:
    """Labels of measurements: one for each value of `operation` that has a name."""
    wanted = {dict(name.when).get("operation", "other") for name in metric.kcl} or {"other"}
    for operation in sorted(wanted):
        known = {"result": "ok", "operation": operation}
        yield tuple(known.get(label, label[:2]) for label in metric.labels)


@functools.cache
def published(selection: PublishedMetrics) -> dict[tuple[str, str], set[tuple[Metric, Datum]]]:
    """What is published of one value of each metric, by operation and name."""
    found: dict[tuple[str, str], set[tuple[Metric, Datum]]] = {}
    for metric in CATALOGUE:
        for labels in label_sets(metric):
            for datum, _ in data_of(metric, labels, StatisticSet.of(1.0), selection):
                operation = dict(datum.dimensions)["Operation"]
                found.setdefault((operation, datum.name), set()).add((metric, datum))
    return found


def described() -> dict[tuple[str, str], tuple[str, str]]:
    """The rows of docs/metrics.md: level and text by operation and name."""
    return {
        (operation, name): (level, text)
        for operation, names, level, text in ROWS
        for name in re.findall(r"`([^`]+)`", names)
    }


def test_the_page_has_a_row_for_each_metric_of_the_kcl() -> None:
    rows = described()
    assert {key: level for key, (level, _) in rows.items()} == {
        (metric.operation, metric.name): metric.level for metric in KCL_METRICS
    }
    assert len(KCL_METRICS) > 70
    kinds = ("same by another operation: `", "none, because ", "none, for the same reason")
    assert all(text == "same" or text.startswith(kinds) for _, text in rows.values())


@pytest.mark.parametrize("metric", KCL_METRICS, ids=lambda one: f"{one.operation}/{one.name}")
def test_a_row_says_same_if_the_metric_is_published_as_the_kcl_does(metric: KclMetric) -> None:
    _, text = described()[metric.operation, metric.name]
    found = published(ALL).get((metric.operation, metric.name), set())
    if text != "same":
        assert not found
        return
    ((_, datum),) = found
    assert datum.unit == metric.unit
    assert {name for name, _ in datum.dimensions} == {"Operation", *metric.dimensions}
    summary = published(PublishedMetrics(Level.SUMMARY, "w-1"))
    assert ((metric.operation, metric.name) in summary) == (metric.level == "summary")


def test_a_row_that_names_another_operation_names_one_that_is_published() -> None:
    names = {f"{operation}/{name}" for operation, name in published(ALL)}
    others = [text for _, text in described().values() if text.startswith("same by another")]
    assert len(others) > 5
    for text in others:
        operation, name = re.findall(r"`([^`]+)`", text)
        assert any(one.startswith(f"{operation}/{name}") for one in names), text


def test_whatever_else_is_published_has_an_operation_of_its_own() -> None:
    kcl = {(metric.operation, metric.name) for metric in KCL_METRICS}
    more = {key for key in published(ALL) if key not in kcl}
    assert {operation for operation, _ in more} == {OWN}
    assert (OWN, "DataLoss") in more
    without = PublishedMetrics(Level.DETAILED, "w-1", by_shard=True, by_stream=True, own=False)
    assert set(published(without)) == set(published(ALL)) - more


def test_by_default_no_dimension_is_a_shard_or_a_stream() -> None:
    for found in published(PublishedMetrics(Level.DETAILED, "w-1")).values():
        for _, datum in found:
            assert {name for name, _ in datum.dimensions} <= {"Operation", "WorkerIdentifier"}
    for found in published(PublishedMetrics(Level.DETAILED, "")).values():
        assert all(len(datum.dimensions) == 1 for _, datum in found)


def data(metric: Metric, *labels: str, values: StatisticSet) -> dict[str, StatisticSet]:
    return {datum.name: found for datum, found in data_of(metric, labels, values, ALL)}


def test_times_are_milliseconds_and_successes_one_or_zero() -> None:
    seconds = StatisticSet(3, 0.6, 0.1, 0.3)
    found = data(catalogue.RENEWAL_DURATION, "ok", values=seconds)
    assert found["Time"] == StatisticSet(3, 600.0, 100.0, 300.0)
    assert found["Success"] == StatisticSet(3, 3.0, 1.0, 1.0)
    failed = data(catalogue.RENEWAL_DURATION, "failed", values=seconds)
    assert failed["Success"] == StatisticSet(3, 0.0, 0.0, 0.0)
    assert failed["Time"] == found["Time"]


def test_a_name_of_one_operation_counts_no_other_operation() -> None:
    one = StatisticSet.of(1)
    assert set(data(catalogue.CALL_DURATION, "s", "a", "GetShardIterator", "ok", values=one)) == {
        "KinesisDataFetcher.getShardIterator.Success",
        "KinesisDataFetcher.getShardIterator.Time",
    }
    assert data(catalogue.CALL_DURATION, "s", "a", "ListShards", "ok", values=one) == {}


def test_a_lease_that_another_worker_has_created_is_a_success() -> None:
    one = StatisticSet.of(0.5)
    created = data(catalogue.TABLE_CALL_DURATION, "PutItem", "refused", values=one)
    assert created["CreateLease.Success"].sum == 1
    refused = data(catalogue.CHECKPOINT_DURATION, "s", "shard", "refused", values=one)
    assert refused["UpdateLease.Success"].sum == 0


def test_the_values_that_are_given_are_not_changed() -> None:
    values = StatisticSet.of(1.0)
    for _, found in data_of(catalogue.LEASES_TOTAL, (), values, ALL):
        found.add(5.0)
    assert values == StatisticSet.of(1.0)


def test_dimensions_hold_what_cloudwatch_takes() -> None:
    selection = PublishedMetrics(Level.SUMMARY, ":wörker\n", by_shard=True, by_stream=True)
    ((datum, _),) = data_of(catalogue.LEASES_HELD, (), StatisticSet.of(1), selection)
    assert dict(datum.dimensions)["WorkerIdentifier"] == "w_rker_"
    labels = ("", "x" * 2000)
    ((datum, _),) = data_of(catalogue.RECORDS_PROCESSED, labels, StatisticSet.of(1), selection)
    assert dict(datum.dimensions) == {
        "Operation": "ProcessTask",
        "ShardId": "x" * 1024,
        "StreamId": "_",
    }


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("flights-app", "flights-app"),
        ("a/b.c_d:e#f g", "a/b.c_d:e#f g"),
        ("AWS/Kinesis", "_AWS/Kinesis"),
        (":x", "x"),
        ("größe", "gr__e"),
        ("::", "sparkinesis"),
        ("n" * 300, "n" * 255),
    ],
)
def test_a_namespace_is_one_that_cloudwatch_takes(name: str, namespace: str) -> None:
    assert namespace_of(Measured.worker(name, "w")) == namespace
    assert namespace_problem(namespace) is None


@pytest.mark.parametrize("namespace", ["", " ", "AWS/x", ":x", "a*", "n" * 256])
def test_a_namespace_that_cloudwatch_refuses_is_found(namespace: str) -> None:
    assert namespace_problem(namespace)


@pytest.mark.parametrize("exporter", [CloudWatchMetrics(), EmfMetrics()])
def test_the_default_is_the_summary_without_shards_and_with_streams_if_there_are_several(
    exporter: CloudWatchMetrics | EmfMetrics,
) -> None:
    summary = PublishedMetrics(Level.SUMMARY, "w")
    several = Measured.worker("a", "w", AwsPlace(has_several_streams=True))
    assert exporter.selection(Measured.worker("a", "w")) == summary
    assert exporter.selection(several) == replace(summary, by_stream=True)
    assert exporter.selection(Measured.query("q")) == replace(summary, worker="", by_stream=True)


def test_what_is_published_is_what_the_options_say() -> None:
    exporter = CloudWatchMetrics(
        namespace="ours",
        level="detailed",
        shard_metrics=True,
        worker_metrics=False,
        own_metrics=False,
        flush_every=7.0,
        max_series=50,
    )
    measured = Measured.worker("a", "w")
    assert exporter.selection(measured) == PublishedMetrics(
        Level.DETAILED, "", by_shard=True, own=False
    )
    publisher = exporter.publisher(measured)
    assert (publisher._flush_every, publisher._sender.unsent._most) == (7.0, 50)
    assert publisher._sender._target._namespace == "ours"  # type: ignore[attr-defined]
