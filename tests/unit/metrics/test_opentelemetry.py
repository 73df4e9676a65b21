"""Metrics by a real OpenTelemetry SDK: names, units, attributes, and many workers of a process."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from sparkinesis import OptionError
from sparkinesis.metrics import OpenTelemetryMetrics, opentelemetry
from sparkinesis.metrics.catalogue import (
    BYTES_PROCESSED,
    CALL_DURATION,
    LAG,
    LEASES_HELD,
    PROCESS_DURATION,
    RECORDS_PROCESSED,
    TABLE_CALL_DURATION,
)
from sparkinesis.metrics.instruments import Instruments
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics, Sample

JAVA = "aws.kinesis.client."


class Sdk:
    """An application's SDK that keeps what it collects in memory."""

    def __init__(self, **limits: Any) -> None:
        self.reader = InMemoryMetricReader(**limits)
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def open(self, worker: str = "w", **given: Any) -> Metrics:
        exporter = OpenTelemetryMetrics(self.provider, **given)
        return exporter.open(Measured.worker("app", worker))

    def collect(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "sparkinesis"
        return {metric.name: metric for metric in scope.metrics}

    def points(self, name: str) -> list[tuple[dict[str, str], Any]]:
        found = self.collect().get(name)
        return [] if found is None else [(dict(p.attributes), p) for p in found.data.data_points]


@pytest.fixture
def sdk() -> Sdk:
    return Sdk()


@pytest.mark.parametrize("shards", [False, True])
def test_records_are_counted_under_javas_name_with_its_attributes(sdk: Sdk, shards: bool) -> None:
    metrics = sdk.open(shards=shards)
    metrics.add(RECORDS_PROCESSED, ("flights", "shardId-0"), 10)
    metrics.add(RECORDS_PROCESSED, ("flights", "shardId-1"), 5)
    found = sdk.points("aws.kinesis.client.records_processed")
    counted = {one.pop("aws.kinesis.shard.id", "all"): point.value for one, point in found}
    assert counted == ({"shardId-0": 10, "shardId-1": 5} if shards else {"all": 15})
    for attributes, _ in found:
        assert attributes == {
            "aws.kinesis.stream_name": "flights",
            "aws.kinesis.operation": "ProcessTask",
            "aws.kinesis.consumer.name": "w",
            "sparkinesis.application": "app",
        }


def test_times_are_milliseconds_under_javas_names_and_seconds_under_ours(sdk: Sdk) -> None:
    metrics = sdk.open()
    metrics.observe(PROCESS_DURATION, ("s", "shardId-0", "ok"), 0.25)
    metrics.observe(TABLE_CALL_DURATION, ("UpdateItem", "ok"), 0.25)
    found = sdk.collect()
    java = found["aws.kinesis.client.record_processor.process_records.duration"]
    ours = found["sparkinesis.table.call.duration"]
    assert (java.unit, ours.unit) == ("ms", "s")
    (of_batches,), (of_calls,) = java.data.data_points, ours.data.data_points
    assert (of_batches.sum, of_batches.count, of_calls.sum) == (250, 1, 0.25)
    assert of_batches.attributes["sparkinesis.result"] == "ok"
    assert of_calls.attributes["rpc.method"] == "UpdateItem"
    assert "aws.kinesis.operation" not in of_calls.attributes
    assert list(of_batches.explicit_bounds) == [1000 * bound for bound in of_calls.explicit_bounds]
    assert of_calls.explicit_bounds[0] == 0.001


def test_calls_that_java_has_have_its_names(sdk: Sdk) -> None:
    metrics = sdk.open()
    metrics.observe(CALL_DURATION, ("s", "shardId-0", "GetRecords", "ok"), 0.5)
    metrics.observe(CALL_DURATION, ("s", "shardId-0", "GetShardIterator", "ok"), 0.25)
    metrics.observe(CALL_DURATION, ("s", "", "ListShards", "ok"), 2)
    metrics.observe(TABLE_CALL_DURATION, ("Scan", "ok"), 3)
    fetcher = f"{JAVA}kinesis_data_fetcher"
    ((_, iterators),) = sdk.points(f"{fetcher}.get_shard_iterator.duration")
    ((of_scans, scans),) = sdk.points(f"{JAVA}list_leases.duration")
    assert (iterators.sum, scans.sum) == (250, 3000)
    assert of_scans["aws.kinesis.operation"] == "TakeLeases"
    ((of_java, java),) = sdk.points(f"{fetcher}.get_records.duration")
    ((of_ours, ours),) = sdk.points("sparkinesis.call.duration")
    assert (java.sum, of_java["aws.kinesis.operation"]) == (500, "ProcessTask")
    assert (ours.sum, of_ours["rpc.method"]) == (2, "ListShards")


def test_bytes_are_a_histogram_of_batches_as_javas(sdk: Sdk) -> None:
    metrics = sdk.open()
    for size in (100, 5_000_000):
        metrics.add(BYTES_PROCESSED, ("s", "shardId-0"), size)
    found = sdk.collect()["aws.kinesis.client.records.size"]
    (point,) = found.data.data_points
    assert (found.unit, point.count, point.sum) == ("By", 2, 5_000_100)
    assert point.explicit_bounds[0] == 1024


def test_workers_of_a_process_share_instruments_and_keep_their_gauges(sdk: Sdk) -> None:
    name = "aws.kinesis.client.current_leases"
    first, second = sdk.open("a"), sdk.open("b")
    first.watch(lambda: [Sample(LEASES_HELD, (), 1)])
    second.watch(lambda: [Sample(LEASES_HELD, (), 2)])

    def held() -> dict[str, Any]:
        return {one["aws.kinesis.consumer.name"]: p.value for one, p in sdk.points(name)}

    assert held() == {"a": 1, "b": 2}
    first.close()
    assert held() == {"b": 2}


@pytest.mark.parametrize("is_raised", [False, True], ids=["the SDK's limit", "as the page says"])
def test_lags_of_more_shards_than_an_sdk_takes_need_a_higher_limit(is_raised: bool) -> None:
    if "cardinality_limits" not in inspect.signature(InMemoryMetricReader).parameters:
        pytest.skip("an older SDK has no limit")
    sdk = Sdk(cardinality_limits={ObservableGauge: 1_000_000}) if is_raised else Sdk()
    held = range(1000)
    sdk.open().watch(lambda: [Sample(LAG, ("s", str(shard)), shard) for shard in held])
    for begin in (0, 1000, 2000):  # each time other shards, as after reshards
        held = range(begin, begin + 1000)
        sdk.collect()
    found = sdk.points("sparkinesis.lag")
    assert len(found) == (1000 if is_raised else 1)
    assert is_raised or "otel.metric.overflow" in found[0][0]


def test_all_gauges_are_read_once_for_a_collection_and_again_after_a_second() -> None:
    now = [0.0]
    provider = MeterProvider([reader := InMemoryMetricReader()], shutdown_on_exit=False)
    instruments = Instruments(provider.get_meter("m"), lambda: now[0])
    reads: list[None] = []
    instruments.watch(lambda: reads.append(None) or [], {})  # type: ignore[func-returns-value]
    held, lag = (instruments._of, LEASES_HELD), (instruments._of, LAG)
    for of, metric in (held, lag):
        of(metric)
    assert len(reads) == 1
    now[0] = 1.5
    held[0](RECORDS_PROCESSED)  # one that was not served yet
    assert len(reads) == 2
    reader.shutdown()


class Stuck(MeterProvider):
    """A provider that heeds no time-out."""

    def __init__(self) -> None:
        super().__init__(shutdown_on_exit=False)
        self.released, self.flushed = threading.Event(), threading.Event()

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        self.released.wait()
        self.flushed.set()
        return True


def test_a_provider_that_is_stuck_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opentelemetry, "FLUSH_SECONDS", 0.01)
    provider = Stuck()
    metrics = OpenTelemetryMetrics(provider).open(Measured.worker("app", "w"))
    closing = threading.Thread(target=metrics.close)
    closing.start()
    closing.join(60)
    has_ended = not closing.is_alive()
    provider.released.set()
    assert has_ended
    assert provider.flushed.wait(60)


def test_an_error_of_the_last_export_is_logged(
    sdk: Sdk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(timeout_millis: float = 0) -> bool:
        raise OSError("the collector is gone")

    monkeypatch.setattr(sdk.provider, "force_flush", broken)
    sdk.open().close()
    assert "were not exported: the collector is gone" in caplog.text


def test_an_exporter_without_providers_travels_to_executors() -> None:
    exporter = pickle.loads(pickle.dumps(OpenTelemetryMetrics(shards=True)))
    assert isinstance(exporter, OpenTelemetryMetrics)
    assert exporter._shards is True


@pytest.mark.parametrize(
    "given", [{"meter_provider": MeterProvider()}, {"tracer_provider": TracerProvider()}]
)
def test_an_exporter_with_a_provider_says_why_it_cannot(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="belongs to its process"):
        pickle.dumps(OpenTelemetryMetrics(**given))


GLOBAL = """
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sparkinesis.metrics import OpenTelemetryMetrics
from sparkinesis.metrics.catalogue import LEASES_HELD, RECORDS_PROCESSED
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Sample

def opened(exporter, worker):
    metrics = exporter.open(Measured.worker("app", worker))
    metrics.watch(lambda: [Sample(LEASES_HELD, (), 1)])
    return metrics

first = opened(OpenTelemetryMetrics(), "before")
first.add(RECORDS_PROCESSED, ("s", "shard"), 1)
reader = InMemoryMetricReader()
provider = MeterProvider([reader])
set_meter_provider(provider)
second = opened(OpenTelemetryMetrics(), "after")
third = opened(OpenTelemetryMetrics(provider), "explicit")
for metrics in (first, second, third):
    metrics.add(RECORDS_PROCESSED, ("s", "shard"), 1)
metrics = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
for metric in sorted(metrics, key=lambda one: one.name):
    workers = [p.attributes["aws.kinesis.consumer.name"] for p in metric.data.data_points]
    print(metric.name, *sorted(workers), *(p.value for p in metric.data.data_points))
"""


def test_global_providers_may_be_set_before_or_after_a_worker_begins() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GLOBAL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "aws.kinesis.client.current_leases after before explicit 1.0 1.0 1.0",
        "aws.kinesis.client.records_processed after before explicit 1.0 1.0 1.0",
    ]
    assert done.stderr == "", "the SDK warns of instruments that are made twice"
