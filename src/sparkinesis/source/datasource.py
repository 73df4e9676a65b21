"""``format("kinesis")``: the data source that Spark calls.

For each query Spark starts several Python processes that only need the schema or the options.
Modules that call AWS are imported inside functions, so that these processes start fast.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
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

from sparkinesis.errors import OptionError, SparkinesisError, check_all
from sparkinesis.source.offsets import KnownOffsets, Offset, ranges, to_json
from sparkinesis.source.options.checked_options import (
    NO_LIMIT,
    StreamReadOptions,
    WriteOptions,
    batch_read_options,
    check_options,
    check_options_of_some_use,
    stream_read_options,
    write_options,
)
from sparkinesis.source.options.option_table import Options, Use, options_for
from sparkinesis.source.reading.read_task import (
    ShardPartition,
    ToRead,
    micro_batch_rows,
    share_out,
)
from sparkinesis.source.row_columns import (
    check_new_table,
    described,
    is_new_table,
    new_table_options,
    read_schema,
    refuse_without_stream,
    table_options,
    table_schema,
)
from sparkinesis.source.spark_python import (
    begin_task,
    exit_on_sigterm,
    is_process_of_spark,
    without_frames,
)
from sparkinesis.stream.address import shown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparkinesis.source.batch_reader import KinesisBatchReader
    from sparkinesis.source.planning.source_planner import SourcePlanner

_log = logging.getLogger(__name__)


class KinesisDataSource(DataSource):
    """Reads Amazon Kinesis data streams, and writes to them."""

    @without_frames()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._given = dict(options)
        self._is_new_table = is_new_table(options, self.name())
        if self._is_new_table:
            self._given = new_table_options(options)
        checked = Options(self._given)
        # The options of a table of the catalog come later, and so do the names of a use.
        if checked.names_a_stream and not checked.unknown and not self._is_new_table:
            check_options_of_some_use(checked)

    @classmethod
    def name(cls) -> str:
        return "kinesis"

    @without_frames()
    def schema(self) -> StructType:
        # Spark asks for it in load() of a read and for a new table, and never for a write.
        if self._is_new_table:
            check_new_table(self._given)
            return table_schema(self._given)
        options = Options(self._given)
        check_options(options, Use.READ, Use.READ_STREAM)
        return read_schema(options["columns"])

    @without_frames()
    def reader(self, schema: StructType) -> KinesisBatchReader:
        from sparkinesis.source.batch_reader import batch_reader  # noqa: PLC0415 - see above

        options = self._read_options(schema, Use.READ)
        return batch_reader(batch_read_options(options))

    def streamReader(self, schema: StructType) -> KinesisStreamReader:  # noqa: N802
        try:
            options = self._read_options(schema, Use.READ_STREAM)
            return KinesisStreamReader(stream_read_options(options))
        except SparkinesisError as error:
            if is_process_of_spark():
                return RefusedStreamReader(error)
            raise

    @without_frames()
    def writer(self, schema: StructType, overwrite: bool) -> KinesisWriter:
        # The columns of the table that is written, unless the program itself names the stream.
        of_table = {} if Options(self._given).names_a_stream else table_options(schema)
        return KinesisWriter(self._write_options(schema, overwrite, of_table))

    @without_frames()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KinesisStreamWriter:  # noqa: N802
        # Columns of a table are those of the one that is read: Spark does not say which is written.
        return KinesisStreamWriter(self._write_options(schema, overwrite, {}))

    def _read_options(self, schema: StructType, use: Use) -> Options:
        options = self._options_above(table_options(schema), use)
        _check_read_schema(schema, options)
        return options

    def _write_options(
        self, schema: StructType, overwrite: bool, of_table: Mapping[str, str]
    ) -> WriteOptions:
        from sparkinesis.source.writing import check_schema  # noqa: PLC0415 - see above

        options = write_options(self._options_above(of_table, Use.WRITE))
        if overwrite:
            raise OptionError(
                f"The mode overwrite would replace {options.address}, but a Kinesis stream can "
                'only be appended to. Write with INSERT INTO or mode("append"); write a streaming '
                'query with outputMode("append") or outputMode("update").'
            )
        check_schema(schema, ordered=options.ordered)
        return options

    def _options_above(self, of_table: Mapping[str, str], use: Use) -> Options:
        """Return the query's own options, and beneath them those of its table for this use."""
        options = Options(options_for(of_table, use) | self._given)
        if not (options.names_a_stream or options.unknown):
            check_all([*options.checks((use,)), ((), refuse_without_stream)])
        return options


def source_named(name: str) -> type[KinesisDataSource]:
    """Return the data source under another name, by which Spark finds it. Raises `OptionError`."""
    if name == KinesisDataSource.name():
        return KinesisDataSource
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise OptionError(
            f"The name {shown(name)} cannot be that of a format. It takes letters, digits and "
            'underscores, and begins with a letter, such as register(spark, name="sparkinesis").'
        )
    return type(f"{name}DataSource", (KinesisDataSource,), {"name": classmethod(lambda _: name)})


def _check_read_schema(schema: StructType, options: Options) -> None:
    """Raise `OptionError` for a schema that the user chose by ``.schema(...)`` of the reader."""
    columns, own = described(schema), described(read_schema(options["columns"]))
    if columns and columns != own:
        raise OptionError(
            f"A read of the kinesis source has fixed columns, and .schema(...) or an altered table "
            f"asks for others: {columns}. Leave out .schema(...), or create the table again, and "
            "parse the column data of the rows, for example JSON: .load().select(from_json("
            f'col("data").cast("string"), schema)). The columns are: {own}.'
        )


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads them on executors.

    A batch is a pure function of its two offsets (`sparkinesis.source.offsets`).
    """

    def __init__(self, options: StreamReadOptions) -> None:
        self._options = options
        self._streams = options.reading.streams
        self._planner: SourcePlanner | None = None
        self._has_logged_removed = False
        self._offsets = KnownOffsets(self._streams, drops_removed=options.drops_removed_streams)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the initial offset: a function of the options alone, without any call."""
        return to_json(dict.fromkeys(self._streams, self._options.initial_positions))

    @without_frames()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Plan as if nothing arrived after this instant; the query ends when it has read all."""
        self._the_planner().stop_at_present()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the options' limit; of two limits only rows, as Spark's type holds just one.

        Without a limit it is `ReadAllAvailable`, by which `latestOffset` leaves out all limits.
        """
        allowance = self._options.allowance
        if allowance.rows < math.inf:
            return ReadMaxRows(int(allowance.rows))
        if allowance.bytes < math.inf:
            return ReadMaxBytes(int(allowance.bytes))
        return ReadAllAvailable()

    @without_frames()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the batch that begins at ``start``; ``start`` if no record follows.

        The options' limits apply, unless Spark asks for everything available.
        """
        offset = self._without_removed(self._offsets.read(start))
        unlimited = isinstance(limit, ReadAllAvailable)
        allowance = NO_LIMIT if unlimited else self._options.allowance
        end = self._the_planner().next_offset(offset, allowance)
        return start if end is offset else self._offsets.write(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the last plan's report of each stream, for the progress: lag, data loss.

        ``{"flights": {"millisBehindLatest": {"max": 1200, "mean": 300, "shards": {...}}, ...}}``:
        a lag stands in for an offset, because no Kinesis call returns the latest sequence number.
        See `sparkinesis.source.stream_report`.
        """
        reports = self._planner.reports if self._planner else {}
        return {stream: report.as_json() for stream, report in reports.items()} or None

    @without_frames()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ShardPartition]:
        """Return the tasks that read the records of all shards in (start, end].

        A task reads one shard, or several that are known to have few records. The order of the
        rows does not depend on it: a batch that is planned again may have a task for each shard.
        """
        since, until = dict(self._offsets.read(start)), self._offsets.read(end)
        for stream in set(until).difference(since, self._streams):
            # Only the first batch starts without its streams: by the options, which have changed.
            since[stream] = dict(self._options.initial_positions)
        planner = self._the_planner()
        expected, consumers = planner.expected(until), planner.consumers()
        carried = planner.carried(since, until)
        tasks = []
        for stream in sorted(since):
            consumer = consumers.get(stream)
            to_read = []
            for each in ranges(since[stream], until.get(stream, {})):
                shard = stream, each.shard_id
                to_read.append(ToRead(each, expected.get(shard), carried.get(shard)))
            # A subscription is opened at once for each shard, as its first event takes a while.
            shared = share_out(to_read) if consumer is None else ([each] for each in to_read)
            tasks += [ShardPartition(stream, task, consumer) for task in shared]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, in the order of each shard. Runs on an executor."""
        assert isinstance(partition, ShardPartition)
        options = self._options.reading
        with without_frames():
            begin_task(options.version)
            yield from micro_batch_rows(options, partition)

    def stop(self) -> None:
        """End the query: deregister its consumers if the options say so."""
        if self._planner is not None:
            self._planner.stop()

    def _without_removed(self, offset: Offset) -> Offset:
        """Return the offset without the streams that the query no longer reads, and log these."""
        removed = {stream: offset[stream] for stream in offset if stream not in self._streams}
        if not removed:
            return offset
        if not self._has_logged_removed:
            self._has_logged_removed = True
            _log.warning(
                "The query no longer reads stream %s, and the next batch removes it from the "
                "checkpoint. Its records after these positions are not delivered: %s",
                ", ".join(map(repr, sorted(removed))),
                json.dumps(to_json(removed)),
            )
        return {stream: offset[stream] for stream in offset if stream in self._streams}

    def _the_planner(self) -> SourcePlanner:
        from sparkinesis.source.planning.source_planner import SourcePlanner  # noqa: PLC0415 - see above

        if self._planner is None:
            self._planner = SourcePlanner(self._options)
            if self._options.fan_out is not None and self._options.fan_out.deregister:
                exit_on_sigterm()
        return self._planner


class RefusedStreamReader(KinesisStreamReader):
    """Raises the error for which a stream cannot be read, at Spark's first call.

    PySpark 4.3 hides what `KinesisDataSource.streamReader` raises behind an ``UnboundLocalError``.
    """

    def __init__(self, error: SparkinesisError) -> None:
        self._error = error

    @without_frames()
    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error

    initialOffset = prepareForTriggerAvailableNow = getDefaultReadLimit = _refuse  # noqa: N815
    latestOffset = partitions = _refuse  # noqa: N815

    def stop(self) -> None:
        """Does nothing: there is no planner."""


class _Writes:
    """Puts rows, at least once each."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    @without_frames()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put the rows of one task. Runs on an executor."""
        from sparkinesis.source.writing import write_batches  # noqa: PLC0415 - see above

        begin_task(self._options.version)
        write_batches(self._options, iterator)
        return WriterCommitMessage()


class KinesisWriter(_Writes, DataSourceArrowWriter):
    """Puts the rows of a batch query."""


class KinesisStreamWriter(_Writes, DataSourceStreamArrowWriter):
    """Puts the rows of a streaming query.

    A retried micro-batch is put again, because Kinesis cannot remove records.
    """
