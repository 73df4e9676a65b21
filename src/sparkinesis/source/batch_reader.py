"""The reader of ``spark.read.format("kinesis")``: plans once on the driver, reads in tasks.

Spark's pushed filters become the streams, shards and times to read. Arrival times may be out of
order within a shard. A lower bound is exact nevertheless: no record before the first one that
arrived at an instant arrived later than it. After an upper bound, records may follow that arrived
before it, so the bound is moved up by `OUT_OF_ORDER_MS`. Spark therefore still applies filters on
time to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from sparkinesis.source.options.checked_options import BatchReadOptions, PushedFilters
from sparkinesis.source.reading.read_task import BatchPartition, batch_rows
from sparkinesis.source.spark_python import begin_task, without_frames

if TYPE_CHECKING:
    import pyarrow as pa

OUT_OF_ORDER_MS = 60_000
"""The assumed disorder of arrival times within a shard, at most."""


class KinesisBatchReader(DataSourceReader):
    """Plans a batch read on the driver and reads it on executors.

    Spark 4.3 plans a DataFrame once, at its first action, and keeps the plan for later ones.
    """

    def __init__(self, options: BatchReadOptions) -> None:
        self._options = options

    @without_frames()
    def partitions(self) -> list[InputPartition]:
        """Return one task for each shard that may have records to read. Calls the service."""
        from sparkinesis.source.batch_planner import plan_read  # noqa: PLC0415 - with boto3

        return [*plan_read(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, in the shard's order. Runs on an executor."""
        if not isinstance(partition, BatchPartition):
            return  # Spark's placeholder when there are no partitions
        with without_frames():
            begin_task(self._options.reading.version)
            yield from batch_rows(self._options.reading, partition)


class FilteredBatchReader(KinesisBatchReader):
    """A batch reader with filter push-down, for `BatchReadOptions.filter_pushdown`.

    This is a class of its own because Spark refuses a reader that has ``pushFilters`` unless
    push-down is enabled in the session.
    """

    @without_frames()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Use the filters to read less; return those that Spark still has to apply."""
        left = []
        for pushed in filters:
            used, is_done = push_filter(self._options.filters, pushed)
            self._options = replace(self._options, filters=used)
            if not is_done:
                left.append(pushed)
        return left


def batch_reader(options: BatchReadOptions) -> KinesisBatchReader:
    return (FilteredBatchReader if options.filter_pushdown else KinesisBatchReader)(options)


def push_filter(filters: PushedFilters, pushed: Filter) -> tuple[PushedFilters, bool]:
    """Add one filter; the flag is True if Spark need not apply the filter to the rows."""
    column: tuple[str, ...] = getattr(pushed, "attribute", ())
    if column == ("approximateArrivalTimestamp",):
        return _push_time_filter(filters, pushed), False
    if column not in {("shardId",), ("stream",)}:
        return filters, False
    if isinstance(pushed, IsNotNull):
        return filters, True
    values = _values(pushed)
    if values is None or not all(isinstance(value, str) for value in values):
        return filters, False
    if column == ("shardId",):
        return replace(filters, shards=_both(filters.shards, values)), True
    return replace(filters, streams=_both(filters.streams, values)), True


def _both(present: frozenset[str] | None, values: Sequence[Any]) -> frozenset[str]:
    return frozenset(values) if present is None else present.intersection(values)


def _values(pushed: Filter) -> Sequence[Any] | None:
    """Return the values that the column may have; None for another kind of filter."""
    if isinstance(pushed, EqualTo | EqualNullSafe):
        return (pushed.value,)
    return pushed.value if isinstance(pushed, In) else None


def _push_time_filter(filters: PushedFilters, pushed: Filter) -> PushedFilters:
    values = _values(pushed)
    if values is None:
        values = (getattr(pushed, "value", None),)
    # A time without a zone cannot be compared with an instant.
    if not values or not all(isinstance(v, datetime) and v.tzinfo is not None for v in values):
        return filters
    first, last = min(values), max(values)
    match pushed:
        case EqualTo() | EqualNullSafe() | In():
            return _before(_from(filters, _ceil_ms(first)), _floor_ms(last) + 1)
        case GreaterThanOrEqual():
            return _from(filters, _ceil_ms(first))
        case GreaterThan():
            return _from(filters, _floor_ms(first) + 1)
        case LessThan():
            return _before(filters, _ceil_ms(last))
        case LessThanOrEqual():
            return _before(filters, _floor_ms(last) + 1)
    return filters


def _from(filters: PushedFilters, ms: int) -> PushedFilters:
    return replace(filters, start_ms=max(0, ms, filters.start_ms or 0))


def _before(filters: PushedFilters, ms: int) -> PushedFilters:
    margin = max(0, ms + OUT_OF_ORDER_MS)
    present = filters.before_ms
    return replace(filters, before_ms=margin if present is None else min(margin, present))


def _floor_ms(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def _ceil_ms(instant: datetime) -> int:
    floor = _floor_ms(instant)
    return floor + (instant.microsecond % 1000 > 0)
