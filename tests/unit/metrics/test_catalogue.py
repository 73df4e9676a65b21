"""The catalogue names each metric once, in every system."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from sparkinesis.metrics.catalogue import CATALOGUE
from sparkinesis.metrics.metric import Kind, Metric, Unit


@pytest.mark.parametrize(
    "name", [lambda metric: metric.name, lambda metric: metric.prometheus_name]
)
def test_no_two_metrics_have_the_same_name(name: Callable[[Metric], str]) -> None:
    names = Counter(map(name, CATALOGUE))
    assert [each for each, count in names.items() if count > 1] == []


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_a_metric_is_described(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z]+)*", metric.name)
    assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", metric.prometheus_name)
    assert metric.help.endswith((".", "...")), "a sentence"
    assert "result" not in metric.labels or "result: " in metric.help or metric.unit is Unit.SECONDS
    assert metric.kind is Kind.GAUGE or "shard" not in metric.series_labels, "such series stay"
    assert not {"application", "worker", "query"} & set(metric.labels), "labels of the scope"
