"""A worker under a real OpenTelemetry SDK, whose metrics and spans are in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sparkinesis.metrics import OpenTelemetryMetrics
from sparkinesis.worker.batches.batch import RecordBatch
from tests import pace
from tests.integration.worker.scene import FIRST, SECOND, Scene, checkpoint

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
    assert records.attributes["aws.kinesis.stream_name"] == scene.stream
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
