"""Spark's micro-batch protocol without Spark: what the engine calls, in its order.

Offsets go through JSON and partitions through pickle, as on their way between driver and executors.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from sparkinesis.source.datasource import KinesisDataSource, KinesisStreamReader
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA

Row = dict[str, Any]

MODES: dict[str, dict[str, str]] = {
    "polling": {},
    "efo": {"consumerMode": "efo", "consumerName": "query"},
}
"""The two ways to read, and the options that choose them."""


@dataclass(frozen=True)
class Batch:
    start: Any
    end: Any
    tasks: list[list[Row]]
    """The rows of each task, in the order in which it gave them."""

    @property
    def rows(self) -> list[Row]:
        return [row for task in self.tasks for row in task]


class Query:
    """A streaming query; `checkpoint` is all that survives `restart`."""

    def __init__(self, **options: str) -> None:
        self._options = {"minFetchPeriod": "0ms", "shardCallsPerSecond": "unlimited", **options}
        self.checkpoint: Any = None
        self.rows_read = 0
        self.restart()

    def restart(self, **options: str) -> None:
        self._options.update(options)
        self.source = KinesisDataSource(dict(self._options))
        self.reader = self._new_reader()

    def _new_reader(self) -> KinesisStreamReader:
        source: KinesisDataSource = pickle.loads(pickle.dumps(self.source))
        return source.streamReader(StructType())

    def plan(self) -> tuple[Any, Any]:
        """The offsets of the next batch; equal when there is none."""
        start = self.checkpoint or _through_json(self.reader.initialOffset())
        return start, _through_json(
            self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        )

    def read(self, start: Any, end: Any) -> Batch:
        """Reads the batch (start, end] by readers that know only its pickled partitions."""
        tasks = []
        for partition in self.reader.partitions(start, end):
            reader = self._new_reader()
            batches = list(reader.read(pickle.loads(pickle.dumps(partition))))
            table = pa.Table.from_batches(batches, USER_RECORD_SCHEMA)
            tasks.append(table.to_pylist())
            self.rows_read += table.num_rows
        return Batch(start, end, tasks)

    def next_batch(self) -> Batch | None:
        """Plan and read one batch and commit it; None when there is none."""
        start, end = self.plan()
        if start == end:
            return None
        batch = self.read(start, end)
        self.checkpoint = end
        return batch

    def drain(self, between: Callable[[], None] = lambda: None) -> Iterator[Batch]:
        """Batches until there is none."""
        while (batch := self.next_batch()) is not None:
            yield batch
            between()


def _through_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))
