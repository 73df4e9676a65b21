"""The interface by which sparkinesis opens spans for a tracer, and the way to switch it off.

A span is opened for each call to Kinesis, each ``process_records`` and each checkpoint that is
written, never for a record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol, TypeAlias

Span: TypeAlias = AbstractContextManager[object]
"""A span of time, which ends with its block. An exception that leaves the block is noted there."""


class Extent(NamedTuple):
    """The records of a batch: the first and the last sequence number, and how many they are."""

    first: str
    last: str
    records: int


class Numbered(Protocol):
    """A record."""

    @property
    def sequence_number(self) -> str: ...


class Tracing(Protocol):
    """Opens the spans of one worker. For any thread. No method blocks or raises.

    Spans of one shard are linked where their sequence numbers overlap: a batch to the calls that
    fetched its records, a checkpoint to the batch that it covers.
    """

    def call(self, operation: str, stream: str, shard: str | None) -> Span:
        """Open the span of one attempt of a call to Kinesis."""

    def fetched(self, stream: str, shard: str, records: Sequence[Numbered]) -> None:
        """Note the records of the call whose span is open in this thread."""

    def process(self, stream: str, shard: str, extent: Callable[[], Extent | None]) -> Span:
        """Open the span of a ``process_records``. ``extent`` returns None for an empty batch."""

    def checkpoint(self, stream: str, shard: str, at: str) -> Span:
        """Open the span of a checkpoint at a sequence number, or at ``SHARD_END``."""


_NO_SPAN: Span = nullcontext()


class NoTracing:
    """Opens no spans."""

    def call(self, operation: str, stream: str, shard: str | None) -> Span:  # noqa: ARG002
        return _NO_SPAN

    def fetched(self, stream: str, shard: str, records: Sequence[Numbered]) -> None:
        pass

    def process(
        self,
        stream: str,  # noqa: ARG002 - the interface
        shard: str,  # noqa: ARG002
        extent: Callable[[], Extent | None],  # noqa: ARG002
    ) -> Span:
        return _NO_SPAN

    def checkpoint(self, stream: str, shard: str, at: str) -> Span:  # noqa: ARG002
        return _NO_SPAN


NO_TRACING = NoTracing()


def tracing_of(metrics: object) -> Tracing:
    """Return the ``tracing`` of metrics whose exporter also opens spans; else `NO_TRACING`."""
    found: Tracing | None = getattr(metrics, "tracing", None)
    return NO_TRACING if found is None else found
