"""The measurements and the spans of one shard: what its record processor did, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparkinesis.errors import LeaseLostError
from sparkinesis.metrics.catalogue import (
    BYTES_PROCESSED,
    CHECKPOINT_DURATION,
    PROCESS_DURATION,
    RECORDS_FILTERED,
    RECORDS_PROCESSED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.metrics.tracing import Extent, Span, tracing_of

_T = TypeVar("_T")


class ShardMeasures:
    """Takes the measurements of one shard, and opens its spans. For any thread.

    With metrics off, no clock is read, and no bytes are counted.
    """

    def __init__(
        self, metrics: Metrics, stream: str, shard_id: str, clock: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._is_on = metrics is not OFF
        self._labels = (stream, shard_id)
        self._tracing = tracing_of(metrics)
        self._clock = clock

    def processing(self, extent: Callable[[], Extent | None]) -> Span:
        """Open the span of a ``process_records`` for the records of ``extent``."""
        return self._tracing.process(*self._labels, extent)

    def processed(self, records: int, data_bytes: Callable[[], int], began: float) -> None:
        """Count a call of ``process_records`` that returned; ``began``: the time of the call."""
        self._took(PROCESS_DURATION, "ok", began)
        if self._is_on and records:
            self._metrics.add(RECORDS_PROCESSED, self._labels, records)
            self._metrics.add(BYTES_PROCESSED, self._labels, data_bytes())

    def processing_failed(self, began: float) -> None:
        """Count a call of ``process_records`` that raised; ``began``: the time of the call."""
        self._took(PROCESS_DURATION, "failed", began)

    def filtered(self, records: int) -> None:
        """Count user records that ``hash_range_filter`` dropped."""
        self._metrics.add(RECORDS_FILTERED, self._labels, records)

    def call(
        self,
        histogram: Metric,
        act: Callable[[], _T],
        refused: tuple[type[BaseException], ...] = (),
    ) -> _T:
        """Call ``act``, and measure it: ok, refused if it raises ``refused``, or failed."""
        began, result = self._clock() if self._is_on else 0.0, "ok"
        try:
            return act()
        except BaseException as error:
            result = "refused" if isinstance(error, refused) else "failed"
            raise
        finally:
            self._took(histogram, result, began)

    def checkpoint(self, at: str, write: Callable[[], None]) -> None:
        """Write a checkpoint by ``write``, and measure it; ``at``: its sequence number."""
        with self._tracing.checkpoint(*self._labels, at):
            self.call(CHECKPOINT_DURATION, write, refused=(LeaseLostError,))

    def _took(self, histogram: Metric, result: str, began: float) -> None:
        if self._is_on:
            self._metrics.observe(histogram, (*self._labels, result), self._clock() - began)


def unmeasured(clock: Callable[[], float]) -> ShardMeasures:
    """Return the measurements of a shard that nobody watches."""
    return ShardMeasures(OFF, "", "", clock)
