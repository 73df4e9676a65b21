"""``format("kinesis")``: the data source that Spark calls.

For each query Spark starts several Python processes that ask for nothing but the schema or the
options. What talks to AWS is imported where it is needed, so that those do not wait for it.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sparkinesis.errors import OptionError
from sparkinesis.source.offsets import from_json, ranges, to_json
from sparkinesis.source.options.allowance import NO_LIMIT
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.options.read_options import StreamReadOptions, stream_read_options
from sparkinesis.stream.position import ShardRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparkinesis.source.batch.batch_reader import KinesisBatchReader
    from sparkinesis.source.options.write_options import WriteOptions
    from sparkinesis.source.planning.source_planner import SourcePlanner

SCHEMA = (
    "partitionKey STRING, data BINARY, stream STRING, shardId STRING, sequenceNumber STRING, "
    "approximateArrivalTimestamp TIMESTAMP, subSequenceNumber BIGINT, explicitHashKey STRING"
)
"""The columns; the first six are those of Databricks' Kinesis source."""


@dataclass
class ShardPartition(InputPartition):
    """One task: a range of one shard."""

    stream: str
    shard_range: ShardRange
    expected: int | None
    """About how many records there are, if the planner knows; rows do not depend on it."""
    consumer_arn: str | None
    """The consumer that reads it, if not by GetRecords; rows do not depend on it."""


class KinesisDataSource(DataSource):
    """Reads Amazon Kinesis data streams; see `sparkinesis.register`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = Options(options)
        self._options.addresses()  # what is wrong with them is told at once

    @classmethod
    def name(cls) -> str:
        return "kinesis"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> KinesisBatchReader:  # noqa: ARG002
        from sparkinesis.source.batch.batch_reader import batch_reader  # noqa: PLC0415 - see above
        from sparkinesis.source.options.batch_read_options import batch_read_options  # noqa: PLC0415

        return batch_reader(batch_read_options(self._options))

    def streamReader(self, schema: StructType) -> KinesisStreamReader:  # noqa: ARG002, N802
        return KinesisStreamReader(stream_read_options(self._options))

    def writer(self, schema: StructType, overwrite: bool) -> KinesisWriter:
        return KinesisWriter(self._write_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KinesisStreamWriter:  # noqa: N802
        return KinesisStreamWriter(self._write_options(schema, overwrite))

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        from sparkinesis.source.options.write_options import write_options  # noqa: PLC0415 - see above
        from sparkinesis.source.writing.rows import check_schema  # noqa: PLC0415 - see above

        options = write_options(self._options)
        if overwrite:
            raise OptionError(
                f"A Kinesis stream can only be added to, and {options.address} would have to be "
                'replaced. Write with mode("append"), and a streaming query with '
                'outputMode("append") or outputMode("update").'
            )
        check_schema(schema, ordered=options.ordered)
        return options


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads them on executors.

    A batch is a pure function of its two offsets (`sparkinesis.source.offsets`).
    """

    def __init__(self, options: StreamReadOptions) -> None:
        self._options = options
        self._streams = options.reading.streams
        self._planner: SourcePlanner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the options want to begin; the same for the same options, without any call."""
        return to_json(dict.fromkeys(self._streams, self._options.initial_positions))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, in as many batches as it takes, and then no more."""
        self._plan().stop_at_present()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options allow; Spark's limits say one thing only, so it may be half of it."""
        allowance = self._options.allowance
        if allowance.rows < math.inf:
            return ReadMaxRows(int(allowance.rows))
        if allowance.bytes < math.inf:
            return ReadMaxBytes(int(allowance.bytes))
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the batch that begins at ``start`` ends; ``start`` if there is nothing to read.

        Limits in the options hold, unless Spark asks for all that is available.
        """
        offset = from_json(self._streams, start)
        unlimited = isinstance(limit, ReadAllAvailable)
        allowance = NO_LIMIT if unlimited else self._options.allowance
        end = self._plan().next_offset(offset, allowance)
        return start if end is offset else to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far behind the streams' tips the planned batch ends, for the query's progress.

        ``{"flights": {"millisBehindLatest": {"max": 1200, "mean": 300}}}``: Kinesis tells no latest
        sequence number that this could be instead.
        """
        return dict(self._planner.lag) if self._planner and self._planner.lag else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ShardPartition]:
        """One task for each shard that has something to read in (start, end]."""
        since, until = from_json(self._streams, start), from_json(self._streams, end)
        planner = self._plan()
        expected, consumers = planner.expected(until), planner.consumers()
        return [
            ShardPartition(
                stream,
                shard_range,
                expected.get((stream, shard_range.shard_id)),
                consumers.get(stream),
            )
            for stream in sorted(since)
            for shard_range in ranges(since[stream], until.get(stream, {}))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in the shard's order. Runs on an executor."""
        from sparkinesis.source.reading.read_task import read_records  # noqa: PLC0415 - see above

        assert isinstance(partition, ShardPartition)
        return read_records(
            self._options.reading,
            self._streams[partition.stream],
            partition.shard_range,
            partition.expected,
            partition.consumer_arn,
        )

    def stop(self) -> None:
        """The query is over: deregister its consumers if it was told to."""
        if self._planner is not None:
            self._planner.stop()

    def _plan(self) -> SourcePlanner:
        from sparkinesis.source.planning.source_planner import SourcePlanner  # noqa: PLC0415 - see above

        if self._planner is None:
            self._planner = SourcePlanner(self._options)
            if self._options.fan_out is not None and self._options.fan_out.deregister:
                _exit_on_sigterm()
        return self._planner


def _exit_on_sigterm() -> None:
    """Spark 4.3 ends the process that plans a query by SIGTERM, which would leave out `stop`."""

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Spark sends it twice
        sys.exit(128 + signal.SIGTERM)

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)


class KinesisWriter(DataSourceArrowWriter):
    """Puts the rows of a batch query, at least once each."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task. Runs on an executor."""
        return _write(self._options, iterator)


class KinesisStreamWriter(DataSourceStreamArrowWriter):
    """Puts the rows of a streaming query, at least once each.

    A micro-batch that is tried again is put again: Kinesis cannot take records back.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of one task. Runs on an executor."""
        return _write(self._options, iterator)


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    from sparkinesis.source.writing.write_task import write_batches  # noqa: PLC0415 - see above

    write_batches(options, batches)
    return WriterCommitMessage()
