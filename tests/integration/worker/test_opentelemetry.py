"""A worker under a real OpenTelemetry SDK: in memory, and by OTLP over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sparkinesis.metrics import OpenTelemetryMetrics, opentelemetry
from sparkinesis.worker.batches.batch import RecordBatch
from tests import pace
from tests.integration.worker.scene import FIRST, SECOND, Scene, checkpoint
from tests.otlp import Receiver, attributes_of

JAVA = "aws.kinesis.client."
DATA = [f"record {number}".encode() for number in range(40)]


def put_all(scene: Scene) -> None:
    for number, data in enumerate(DATA):
        scene.put(data, hash_key=number % 2 * 2**127)


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_a_worker_is_seen_under_javas_names(scene: Scene) -> None:
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    put_all(scene)
    worker = scene.start(
        {"metrics": (OpenTelemetryMetrics(meters, tracers),)},
        on_records=checkpoint,
        worker_id="w",
    )
    scene.journal.wait_for_data(*DATA)
    running = points(reader)
    lags = running[JAVA + "consumer.lag.duration"]
    assert {point.attributes["aws.kinesis.shard.id"] for point in lags} == {FIRST, SECOND}
    assert [point.value for point in running[JAVA + "current_leases"]] == [2]
    assert worker.shutdown(pace.seconds(30))

    found = points(reader)
    (records,) = found[JAVA + "records_processed"]
    assert records.value == len(DATA)
    assert records.attributes == {
        "aws.kinesis.stream_name": scene.stream,
        "aws.kinesis.operation": "ProcessTask",
        "aws.kinesis.consumer.name": "w",
        "sparkinesis.application": scene.stream,
    }
    (size,) = found[JAVA + "records.size"]
    assert size.sum == sum(map(len, DATA))
    batches = [batch for _, call, batch in scene.journal.entries if call == "process_records"]
    (times,) = found[JAVA + "record_processor.process_records.duration"]
    assert times.count == len(batches)
    assert JAVA + "consumer.lag.duration" not in found, "the shards are no longer read"
    of_calls = found[JAVA + "kinesis_data_fetcher.get_records.duration"]
    spans = exporter.get_finished_spans()
    calls = of(spans, "GetRecords")
    assert sum(point.count for point in of_calls) == len(calls)
    check_spans(spans, batches)


def of(spans: tuple[ReadableSpan, ...], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def check_spans(spans: tuple[ReadableSpan, ...], batches: list[RecordBatch]) -> None:
    """Each batch has its span, linked to the calls that fetched it; its checkpoint is inside."""
    with_records = {
        span.context.span_id: span
        for span in of(spans, "GetRecords")
        if span.context is not None and "messaging.batch.message_count" in (span.attributes or {})
    }
    processed = of(spans, "process_records")
    numbers = [
        ((span.attributes or {})["sparkinesis.sequence_number.first"], len(span.links))
        for span in processed
    ]
    assert sorted(numbers) == sorted((batch.records[0].sequence_number, 1) for batch in batches)
    for span in processed:
        assert span.attributes is not None
        fetched = with_records[span.links[0].context.span_id].attributes
        assert fetched is not None
        for name in ("aws.kinesis.shard.id", "sparkinesis.sequence_number.first"):
            assert span.attributes[name] == fetched[name]
    inside = {span.parent.span_id for span in of(spans, "checkpoint") if span.parent is not None}
    assert inside == {span.context.span_id for span in processed if span.context is not None}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.close()


@pytest.fixture
def provider(receiver: Receiver) -> Iterator[MeterProvider]:
    """An SDK that exports nothing of its own accord within a test."""
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=receiver.endpoint, timeout=60),
        export_interval_millis=3_600_000,
        export_timeout_millis=60_000,
    )
    running = MeterProvider([reader], shutdown_on_exit=False)
    yield running
    receiver.answers.set()
    running.shutdown()


def test_the_last_records_are_exported_when_a_worker_ends(
    scene: Scene, receiver: Receiver, provider: MeterProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opentelemetry, "FLUSH_SECONDS", 60.0)
    put_all(scene)
    worker = scene.start({"metrics": (OpenTelemetryMetrics(provider),)})
    scene.journal.wait_for_data(*DATA)
    assert worker.shutdown(pace.seconds(30))
    found = receiver.last()
    (records,) = found[JAVA + "records_processed"].sum.data_points
    assert (records.as_double or records.as_int) == len(DATA)
    (size,) = found[JAVA + "records.size"].histogram.data_points
    assert size.sum == sum(map(len, DATA))
    assert attributes_of(records)["aws.kinesis.stream_name"] == scene.stream
    assert found[JAVA + "record_processor.process_records.duration"].unit == "ms"


def test_a_collector_that_does_not_answer_holds_up_no_record_and_no_end(
    scene: Scene, receiver: Receiver, provider: MeterProvider
) -> None:
    receiver.answers.clear()
    worker = scene.start({"metrics": (OpenTelemetryMetrics(provider),)})
    exporting = threading.Thread(target=provider.force_flush)
    exporting.start()
    assert receiver.asked.wait(pace.seconds(30))
    put_all(scene)
    scene.journal.wait_for_data(*DATA)
    before = time.monotonic()
    assert worker.shutdown(pace.seconds(30))
    assert time.monotonic() - before < pace.seconds(25), "the collector takes a minute"
    receiver.answers.set()
    exporting.join()
