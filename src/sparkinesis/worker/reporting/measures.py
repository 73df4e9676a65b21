"""The measurements and the spans of one shard: what its record processor did, and for how long."""

from __future__ import annotations

from collections.abc import Callable

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
        if not self._is_on:
            return
        self._metrics.observe(PROCESS_DURATION, (*self._labels, "ok"), self._clock() - began)
        if records:
            self._metrics.add(RECORDS_PROCESSED, self._labels, records)
            self._metrics.add(BYTES_PROCESSED, self._labels, data_bytes())

    def processing_failed(self, began: float) -> None:
        """Count a call of ``process_records`` that raised; ``began``: the time of the call."""
        if self._is_on:
            self._metrics.observe(
                PROCESS_DURATION, (*self._labels, "failed"), self._clock() - began
            )

    def filtered(self, records: int) -> None:
        """Count user records that ``hash_range_filter`` dropped."""
        self._metrics.add(RECORDS_FILTERED, self._labels, records)

    def call(self, histogram: Metric, act: Callable[[], None]) -> None:
        """Call ``act``, and measure it: ok, or failed if it raises."""
        self._measure(histogram, act, lambda _: "failed")

    def checkpoint(self, at: str, write: Callable[[], None]) -> None:
        """Write a checkpoint by ``write``, and measure it; ``at``: its sequence number."""
        with self._tracing.checkpoint(*self._labels, at):
            self._measure(CHECKPOINT_DURATION, write, checkpoint_result)

    def _measure(
        self, histogram: Metric, act: Callable[[], None], result_of: Callable[[BaseException], str]
    ) -> None:
        if not self._is_on:
            act()
            return
        began, result = self._clock(), "ok"
        try:
            act()
        except BaseException as error:
            result = result_of(error)
            raise
        finally:
            self._metrics.observe(histogram, (*self._labels, result), self._clock() - began)


def checkpoint_result(error: BaseException) -> str:
    """Return the label ``result`` of a checkpoint that was not written. Pure."""
    return "refused" if isinstance(error, LeaseLostError) else "failed"


def unmeasured(clock: Callable[[], float]) -> ShardMeasures:
    """Return the measurements of a shard that nobody watches."""
    return ShardMeasures(OFF, "", "", clock)
