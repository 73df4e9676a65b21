"""The reader of ``spark.read.format("kinesis")``: plans once on the driver, reads in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from sparkinesis.source.batch.shard_reads import BatchPartition, PushedFilters, push_filter
from sparkinesis.source.options.read_options import BatchReadOptions
from sparkinesis.source.spark_process import begin_task, told_by_its_message

if TYPE_CHECKING:
    import pyarrow as pa


class KinesisBatchReader(DataSourceReader):
    """Plans a batch read on the driver and reads it on executors.

    Spark 4.3 plans a DataFrame once, at its first action, and keeps the plan for later ones.
    """

    def __init__(self, options: BatchReadOptions) -> None:
        self._options = options
        self._filters = PushedFilters()

    @told_by_its_message()
    def partitions(self) -> list[InputPartition]:
        """Return one task for each shard that may have records to read. Calls the service."""
        from sparkinesis.source.batch.batch_planner import plan_read  # noqa: PLC0415 - with boto3

        return [*plan_read(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, in the shard's order. Runs on an executor."""
        from sparkinesis.source.reading.read_task import read_records, rows_before  # noqa: PLC0415 - with boto3

        if not isinstance(partition, BatchPartition):
            return  # Spark's placeholder when there are no partitions
        reading = self._options.reading
        with told_by_its_message():
            begin_task(reading.version)
            rows = read_records(reading, reading.streams[partition.stream], partition.shard_range)
            until = partition.before_ms
            yield from rows if until is None else rows_before(rows, until)


class FilteredBatchReader(KinesisBatchReader):
    """A batch reader with filter push-down, for `BatchReadOptions.filter_pushdown`.

    This is a class of its own because Spark refuses a reader that has ``pushFilters`` unless
    push-down is enabled in the session.
    """

    @told_by_its_message()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Use the filters to read less; return those that Spark still has to apply."""
        left = []
        for pushed in filters:
            self._filters, is_done = push_filter(self._filters, pushed)
            if not is_done:
                left.append(pushed)
        return left


def batch_reader(options: BatchReadOptions) -> KinesisBatchReader:
    return (FilteredBatchReader if options.filter_pushdown else KinesisBatchReader)(options)
