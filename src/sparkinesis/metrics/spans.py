"""Spans of calls, batches and checkpoints, linked where their sequence numbers overlap."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from opentelemetry import context, trace
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, Tracer

from sparkinesis.metrics.instruments import CALL, SHARD, STREAM, Attributes
from sparkinesis.metrics.metrics import Extent, Numbered, Span

_log = logging.getLogger(__name__)

MOST_RANGES = 16
"""Spans that are remembered for each shard, of calls as of batches: a worker reads a few pages
ahead."""
MOST_SHARDS = 10_000
"""Shards whose spans are remembered; the one without a span for the longest time is forgotten."""


class _Range(NamedTuple):
    first: int
    last: int
    span: SpanContext


class Ranges:
    """The latest spans of shards, by the sequence numbers of their records. For any thread.

    Holds the latest spans of each shard, for a bounded number of shards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[tuple[str, str], deque[_Range]] = OrderedDict()

    def note(self, stream: str, shard: str, first: str, last: str, span: SpanContext) -> None:
        """Remember the span of these records."""
        with self._lock:
            found = self._of.get((stream, shard))
            if found is None:
                found = self._of[stream, shard] = deque(maxlen=MOST_RANGES)
                if len(self._of) > MOST_SHARDS:
                    self._of.popitem(last=False)
            self._of.move_to_end((stream, shard))
            found.append(_Range(int(first), int(last), span))

    def links(self, stream: str, shard: str, first: str, last: str) -> list[Link]:
        """Return links to the spans whose records overlap these."""
        low, high = int(first), int(last)
        with self._lock:
            ranges = list(self._of.get((stream, shard), ()))
        return [Link(one.span) for one in ranges if one.first <= high and one.last >= low]


class OtelTracing:
    """Opens spans by a tracer. Implements `Tracing`. Errors of the tracer are logged once."""

    def __init__(self, tracer: Tracer, attributes: Mapping[str, str]) -> None:
        """``attributes``: those of all spans of the worker."""
        self._tracer = tracer
        self._attributes = dict(attributes)
        self._fetched = Ranges()
        self._processed = Ranges()
        self._reported: set[str] = set()

    def call(self, operation: str, stream: str, shard: str | None) -> Span:
        """Open the span of one attempt of a call to Kinesis."""
        attributes = {"rpc.system": "aws-api", "rpc.service": "Kinesis", CALL: operation}

        def start() -> trace.Span:
            attributes.update(self._of_shard(stream, shard))
            return self._tracer.start_span(operation, kind=SpanKind.CLIENT, attributes=attributes)

        return _Open(start, self._report)

    def fetched(self, stream: str, shard: str, records: Sequence[Numbered]) -> None:
        """Note the records of the call whose span is open in this thread."""
        if not records:
            return
        try:
            span = trace.get_current_span()
            if span.is_recording():
                first, last = records[0].sequence_number, records[-1].sequence_number
                _note(span, first, last, len(records))
                self._fetched.note(stream, shard, first, last, span.get_span_context())
        except Exception as error:  # noqa: BLE001 - the records are processed nevertheless
            self._report(error)

    def process(self, stream: str, shard: str, extent: Callable[[], Extent | None]) -> Span:
        """Open the span of a ``process_records``."""

        def start() -> trace.Span:
            of = extent()
            span = self._tracer.start_span(
                "process_records",
                kind=SpanKind.CONSUMER,
                attributes=self._of_shard(stream, shard),
                links=self._fetched.links(stream, shard, of.first, of.last) if of else None,
            )
            if of is not None and span.is_recording():
                _note(span, of.first, of.last, of.records)
                self._processed.note(stream, shard, of.first, of.last, span.get_span_context())
            return span

        return _Open(start, self._report)

    def checkpoint(self, stream: str, shard: str, at: str) -> Span:
        """Open the span of a checkpoint."""

        def start() -> trace.Span:
            is_number = at.isascii() and at.isdecimal()
            return self._tracer.start_span(
                "checkpoint",
                kind=SpanKind.CLIENT,
                attributes={
                    **self._of_shard(stream, shard),
                    "sparkinesis.sequence_number": at,
                },
                links=self._processed.links(stream, shard, at, at) if is_number else None,
            )

        return _Open(start, self._report)

    def _of_shard(self, stream: str, shard: str | None) -> Attributes:
        found = {**self._attributes, STREAM: stream}
        if shard:
            found[SHARD] = shard
        return found

    def _report(self, error: Exception) -> None:
        kind = type(error).__qualname__
        if kind not in self._reported:
            self._reported.add(kind)
            _log.warning(
                "A span could not be taken, and is lost: %s. Records are processed as before; "
                "further errors of this kind are not logged.",
                error,
                exc_info=error,
            )


def _note(span: trace.Span, first: str, last: str, records: int) -> None:
    span.set_attribute("sparkinesis.sequence_number.first", first)
    span.set_attribute("sparkinesis.sequence_number.last", last)
    span.set_attribute("messaging.batch.message_count", records)


class _Open:
    """A span that is current in its block. Raises nothing of its own."""

    def __init__(
        self, start: Callable[[], trace.Span], report: Callable[[Exception], None]
    ) -> None:
        self._start = start
        self._report = report
        self._span: trace.Span | None = None

    def __enter__(self) -> None:
        try:
            self._span = self._start()
            self._token = context.attach(trace.set_span_in_context(self._span))
        except Exception as error:  # noqa: BLE001 - the block runs without a span
            self._report(error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        span = self._span
        if span is None:
            return
        try:
            context.detach(self._token)
            if error is not None:
                span.record_exception(error)
                span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        except Exception as problem:  # noqa: BLE001 - as above
            self._report(problem)
        try:
            span.end()
        except Exception as problem:  # noqa: BLE001 - as above
            self._report(problem)
