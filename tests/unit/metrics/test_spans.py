"""Spans by a real SDK: what they say, how they are linked, and that they never harm."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode

from sparkinesis.metrics import spans
from sparkinesis.metrics.metrics import Extent
from sparkinesis.metrics.spans import OtelTracing, Ranges
from sparkinesis.stream.page import Record


class Traced:
    def __init__(self, **given: Any) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False, **given)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OtelTracing(provider.get_tracer("t"), {"sparkinesis.application": "app"})

    def fetch(self, *numbers: int, shard: str = "shardId-0") -> None:
        with self.tracing.call("GetRecords", "s", shard):
            records = [Record(data=b"", sequence_number=str(number)) for number in numbers]
            self.tracing.fetched("s", shard, records)

    def process(self, first: int, last: int, shard: str = "shardId-0") -> None:
        with self.tracing.process("s", shard, lambda: Extent(str(first), str(last), 9)):
            pass

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traced() -> Traced:
    return Traced()


def ids(*found: ReadableSpan) -> list[int]:
    return [span.context.span_id for span in found if span.context is not None]


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_a_call_says_what_was_called_and_what_came(traced: Traced) -> None:
    traced.fetch(3, 4, 9)
    (span,) = traced.spans("GetRecords")
    assert span.kind is trace.SpanKind.CLIENT
    assert dict(span.attributes or {}) == {
        "rpc.system": "aws-api",
        "rpc.service": "Kinesis",
        "rpc.method": "GetRecords",
        "sparkinesis.application": "app",
        "aws.kinesis.stream_name": "s",
        "aws.kinesis.shard.id": "shardId-0",
        "sparkinesis.sequence_number.first": "3",
        "sparkinesis.sequence_number.last": "9",
        "messaging.batch.message_count": 3,
    }


def test_a_batch_is_linked_to_the_calls_that_fetched_its_records(traced: Traced) -> None:
    traced.fetch(1, 9)
    traced.fetch(10, 11)  # sorts before 9 as text
    traced.fetch(12, 20)
    traced.fetch(10, 11, shard="shardId-1")
    traced.process(9, 11)
    calls, (batch,) = traced.spans("GetRecords"), traced.spans("process_records")
    assert linked(batch) == ids(*calls[:2])
    assert (batch.attributes or {})["messaging.batch.message_count"] == 9


def test_a_checkpoint_is_linked_to_the_batch_that_it_covers(traced: Traced) -> None:
    traced.process(1, 9)
    traced.process(10, 12)
    for at in ("10", "SHARD_END"):
        with traced.tracing.checkpoint("s", "shardId-0", at):
            pass
    batches, (at_ten, at_end) = traced.spans("process_records"), traced.spans("checkpoint")
    assert linked(at_ten) == ids(batches[1])
    assert linked(at_end) == []
    assert (at_end.attributes or {})["sparkinesis.sequence_number"] == "SHARD_END"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_an_error_leaves_the_block_and_is_noted(traced: Traced, error: BaseException) -> None:
    with (
        pytest.raises(type(error)) as raised,
        traced.tracing.process("s", "shardId-0", lambda: None),
    ):
        raise error
    assert raised.value is error
    (span,) = traced.spans("process_records")
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]
    assert not trace.get_current_span().is_recording()


def test_spans_that_are_not_sampled_are_not_remembered() -> None:
    traced = Traced(sampler=ALWAYS_OFF)
    traced.fetch(1, 2)
    traced.process(1, 2)
    assert traced.exporter.get_finished_spans() == ()
    assert traced.tracing._fetched.links("s", "shardId-0", "1", "2") == []
    assert traced.tracing._processed.links("s", "shardId-0", "1", "2") == []


class Broken(SpanProcessor):
    def __init__(self, at: str) -> None:
        self.at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.at == "start":
            raise OSError("the processor is broken")

    def on_end(self, span: Any) -> None:
        if self.at == "end":
            raise OSError("the processor is broken")


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_broken_tracer_harms_nothing_and_is_logged_once(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken(at))
    tracing = OtelTracing(provider.get_tracer("t"), {})
    ran = []
    for _ in range(3):
        with tracing.process("s", "shardId-0", lambda: None):
            ran.append(1)
    assert len(ran) == 3
    assert caplog.text.count("A span could not be taken") == 1
    assert not trace.get_current_span().is_recording()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_SHARDS", 3)
    ranges = Ranges()
    span = NonRecordingSpan(SpanContext(1, 1, is_remote=False)).get_span_context()
    for shard in range(5):
        for number in range(100):
            ranges.note("s", f"shardId-{shard}", str(number), str(number), span)
    assert [len(ranges.links("s", f"shardId-{shard}", "0", "99")) for shard in range(5)] == [
        0,
        0,
        *[spans.MOST_RANGES] * 3,
    ]
