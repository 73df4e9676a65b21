"""The tasks of a read: how the ranges of a micro-batch are shared out, and how a task makes rows.

A task of a batch read reads one shard (`sparkinesis.source.batch_planner`). In a micro-batch, a
task costs Spark some 20 to 50 ms, however few records the task reads, so a task reads several
light shards. Only neighbours share a task, and a task reads its ranges one after the other, so the
order of a batch's rows does not depend on how the ranges are shared out. Records that the planner
has in hand travel with the task, which then makes no call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from sparkinesis.source.options.checked_options import ReadOptions
from sparkinesis.source.options.values import removed_stream
from sparkinesis.stream.position import ShardRange, user_records_done

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkinesis.stream.page import Record

MAX_FETCHED_SHARDS = 8
"""The most shards that a task fetches from. Each takes two or three calls, one after the other."""

MIN_FETCHING_TASKS = 4
"""The fewest tasks that fetch from four shards of a stream or more: small batches are read in
parallel, too. Records that travel with a task are not fetched."""

MAX_RECORDS = 4_000
"""The most records of a task that reads several shards."""

_ARRIVAL = "approximateArrivalTimestamp"

MAX_CARRIED = 500_000
"""The most bytes of records that a task is handed: Spark warns of a task of a mebibyte."""


@dataclass(frozen=True, slots=True)
class ToRead:
    """A range of a batch, and what the planner knows of it."""

    shard_range: ShardRange
    expected: int | None = None
    """The approximate number of its records; None if it is not known."""
    carried: Sequence[Record] | None = None
    """The records, if the planner has them: the task needs no call."""


@dataclass
class ShardPartition(InputPartition):
    """One task of a micro-batch: a range of one shard, or of each of several light ones."""

    stream: str
    to_read: Sequence[ToRead]
    """The ranges; what the planner knows of them does not change the rows."""
    consumer_arn: str | None
    """The consumer to subscribe as; None reads by GetRecords. It does not change the rows."""


@dataclass
class BatchPartition(InputPartition):
    """One task of a batch read: a range of one shard."""

    stream: str
    shard_range: ShardRange
    before_ms: int | None = None
    """The read stops at the first record that arrived at this epoch millisecond or later."""


def share_out(ranges: Sequence[ToRead]) -> Iterator[list[ToRead]]:
    """Yield the ranges of each task of one stream, in order.

    A range whose number of records is not known is a task of its own. Ranges whose records the
    planner has share a task as long as they are few, however many there are.
    """
    together: list[ToRead] = []
    records: int | None = 0
    size = 0
    most = max(1, min(MAX_FETCHED_SHARDS, len(ranges) // MIN_FETCHING_TASKS))
    for one in ranges:
        is_carried = one.carried is not None
        own = sum(len(record.data) for record in one.carried or ())
        if together:
            fits = (
                records is not None
                and one.expected is not None
                and records + one.expected <= MAX_RECORDS
                and is_carried == (together[0].carried is not None)
                and (size + own <= MAX_CARRIED if is_carried else len(together) < most)
            )
            if not fits:
                yield together
                together, records, size = [], 0, 0
        together.append(one)
        records = None if records is None or one.expected is None else records + one.expected
        size += own
    if together:
        yield together


def micro_batch_rows(options: ReadOptions, task: ShardPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task of a micro-batch, in the order of each shard."""
    for each in task.to_read:
        if each.carried is not None:
            yield _rows(each.carried, task.stream, each.shard_range, options)
            continue
        # With the client of AWS, which records in hand do not need.
        from sparkinesis.source.reading.shard_reader import read_records  # noqa: PLC0415

        address = options.streams.get(task.stream)
        if address is None:  # the query no longer reads the stream of a batch that was planned
            address = removed_stream(task.stream, options.addresses)
        for records in read_records(
            options, address, each.shard_range, each.expected, task.consumer_arn
        ):
            yield _rows(records, task.stream, each.shard_range, options)


def batch_rows(options: ReadOptions, task: BatchPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task of a batch read, in the shard's order."""
    from sparkinesis.source.reading.shard_reader import read_records  # noqa: PLC0415 - see above

    pages = read_records(options, options.streams[task.stream], task.shard_range)
    columns = options.columns
    if task.before_ms is not None and _ARRIVAL not in columns:
        options = replace(options, columns=(*columns, _ARRIVAL))
    rows = (_rows(records, task.stream, task.shard_range, options) for records in pages)
    if task.before_ms is not None:
        rows = (batch.select(columns) for batch in _rows_before(rows, task.before_ms))
    yield from rows


def _rows(
    records: Sequence[Record], stream: str, shard_range: ShardRange, options: ReadOptions
) -> pa.RecordBatch:
    """Return the rows of these records of ``shard_range``: all of them, or a part, in order."""
    from sparkinesis.stream.reading.arrow import to_arrow  # noqa: PLC0415 - with pyarrow

    deaggregate = options.deaggregate
    rows = to_arrow(
        records,
        stream=stream,
        shard_id=shard_range.shard_id,
        deaggregate=deaggregate,
        columns=options.columns,
    )
    # Without deaggregation a row is a whole record, which cannot be delivered in part.
    done = user_records_done(records[0].sequence_number, shard_range.start) if deaggregate else 0
    return rows.slice(done)


def _rows_before(batches: Iterator[pa.RecordBatch], ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows before the first one that arrived at ``ms`` (epoch milliseconds) or later."""
    import pyarrow as pa  # noqa: PLC0415 - the driver shares batches out without it
    import pyarrow.compute as pc  # noqa: PLC0415

    instant = pa.scalar(ms, pa.timestamp("ms", tz="UTC"))
    for batch in batches:
        is_late = pc.greater_equal(batch.column(_ARRIVAL), instant)
        first: int = pc.index(is_late, True).as_py()
        if first >= 0:
            yield batch.slice(0, first)
            return
        yield batch
