"""Lines are documents of the embedded metric format, and tell what was measured."""

from __future__ import annotations

import io
import json
import pickle
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from sparkinesis import OptionError
from sparkinesis.metrics import EmfMetrics
from sparkinesis.metrics.catalogue import CATALOGUE, LEASES_HELD, RECORDS_PROCESSED
from sparkinesis.metrics.cloudwatch.data import Datum, StatisticSet
from sparkinesis.metrics.cloudwatch.emf import MOST_VALUES, EmfLines, lines_of, value_of
from sparkinesis.metrics.cloudwatch.publisher import Fate, Point
from sparkinesis.metrics.metric import Kind, Measured, Metric
from sparkinesis.metrics.metrics import Sample

_Name = Annotated[str, Meta(min_length=1, max_length=1024)]
_Dimension = Annotated[str, Meta(min_length=1, max_length=250)]
_Unit = Annotated[str, Meta(pattern="^(Count|Bytes|Milliseconds)$")]


class Definition(msgspec.Struct, forbid_unknown_fields=True):
    Name: _Name
    Unit: _Unit


class Directive(msgspec.Struct, forbid_unknown_fields=True):
    Namespace: Annotated[str, Meta(min_length=1, max_length=1024)]
    Dimensions: Annotated[
        list[Annotated[list[_Dimension], Meta(max_length=30)]], Meta(min_length=1, max_length=1)
    ]
    Metrics: Annotated[list[Definition], Meta(min_length=1, max_length=100)]


class Metadata(msgspec.Struct, forbid_unknown_fields=True):
    Timestamp: int
    CloudWatchMetrics: Annotated[list[Directive], Meta(min_length=1, max_length=1)]


class Document(msgspec.Struct):
    """The published schema of the format, and what its text says besides."""

    _aws: Metadata


def checked(line: bytes) -> tuple[Directive, dict[str, Any]]:
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert len(line) < 1_000_000
    (directive,) = msgspec.json.decode(line, type=Document)._aws.CloudWatchMetrics
    root = json.loads(line)
    for dimension in directive.Dimensions[0]:
        assert isinstance(root[dimension], str)
        assert 1 <= len(root[dimension]) <= 1024
    for metric in directive.Metrics:
        value = root[metric.Name]
        values = value if isinstance(value, list) else [value]
        assert 1 <= len(values) <= MOST_VALUES
        assert all(isinstance(each, int | float) for each in values)
    named = {*directive.Dimensions[0], *(metric.Name for metric in directive.Metrics)}
    assert set(root) == {"_aws", *named}
    return directive, root


def test_all_metrics_make_valid_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.log"
    exporter = EmfMetrics(str(path), level="detailed", shard_metrics=True)
    metrics = pickle.loads(pickle.dumps(exporter)).open(Measured.worker("app", "w-1"))
    gauges: list[Metric] = []
    for metric in CATALOGUE:
        labels = tuple("ok" if label == "result" else label for label in metric.labels)
        if metric.kind is Kind.COUNTER:
            metrics.add(metric, labels, 2)
            metrics.add(metric, labels, 3)
        elif metric.kind is Kind.HISTOGRAM:
            for value in (0.25, 0.5, 1.5):
                metrics.observe(metric, labels, value)
        else:
            gauges.append(metric)
    metrics.watch(lambda: [Sample(one, one.labels, 4.0) for one in gauges])
    metrics.close()
    lines = path.read_bytes().splitlines(keepends=True)
    found = [checked(line) for line in lines]
    assert len(lines) > 5, "a line for each combination of dimensions"
    task = {root["Operation"]: root for _, root in found if "ShardId" in root}["ProcessTask"]
    assert task["RecordsProcessed"] == 5
    assert sorted(task["RecordProcessor.processRecords.Time"]) == [250, 500, 1500]
    assert task["Success"] == [1, 1, 1]
    assert task["MillisBehindLatest"] == 4000
    assert {directive.Namespace for directive, _ in found} == {"app"}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_a_list_has_the_statistics_of_what_was_measured(values: list[float]) -> None:
    one = StatisticSet.of(values[0])
    for value in values[1:]:
        one.add(value)
    found = value_of(one, is_total=False)
    told = found if isinstance(found, list) else [found]
    assert len(told) == min(len(values), MOST_VALUES)
    assert min(told) == pytest.approx(min(values))
    assert max(told) == pytest.approx(max(values))
    if len(values) <= MOST_VALUES:
        assert sum(told) == pytest.approx(sum(values), abs=1e-6)


def test_a_line_defines_a_hundred_metrics_at_most() -> None:
    points = [
        Point(minute, Datum(f"n-{n}", "Count", (("Operation", "X"),)), StatisticSet.of(n))
        for minute in (5, 6)
        for n in range(250)
    ]
    found = [checked(line) for line in lines_of("app", points)]
    assert [len(directive.Metrics) for directive, _ in found] == [100, 100, 50] * 2
    assert [root["_aws"]["Timestamp"] for _, root in found] == [300_000] * 3 + [360_000] * 3


def test_lines_go_to_standard_output_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    metrics = EmfMetrics(namespace="mine").open(Measured.worker("app", "w"))
    metrics.add(RECORDS_PROCESSED, ("s", "a"), 5)
    metrics.watch(lambda: [Sample(LEASES_HELD, (), 2)])
    metrics.close()
    found = [checked(line.encode()) for line in printed.getvalue().splitlines(keepends=True)]
    assert [directive.Namespace for directive, _ in found] == ["mine", "mine"]
    assert [root.get("WorkerIdentifier") for _, root in found] == [None, "w"]


def test_a_file_may_be_renamed_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "metrics.log"
    lines = EmfLines("app", str(path))
    point = Point(1, Datum("n", "Count", ()), StatisticSet.of(1))
    lines.send([point])
    path.rename(tmp_path / "metrics.log.1")
    lines.send([point])
    assert path.read_bytes() == (tmp_path / "metrics.log.1").read_bytes()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    lines = EmfLines("app", str(tmp_path / "none" / "metrics.log"))
    sent = lines.send([Point(1, Datum("n", "Count", ()), StatisticSet.of(1))])
    assert sent.fate is Fate.LOST
    assert "No such file" in sent.problem


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": ""}, "path is ''"),
        ({"namespace": "AWS/x"}, "namespace is 'AWS/x'; names that begin with AWS/"),
        ({"namespace": 5}, "namespace is 5; it must be a string"),
        ({"flush_every": 0}, "flush_every is 0; it must be a number of seconds from 1"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as caught:
        EmfMetrics(**options)
    assert str(caught.value).startswith(text)
