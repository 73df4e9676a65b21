"""Spark's micro-batch protocol without Spark: what the engine calls, in its order.

Offsets go through JSON and partitions through pickle, as on their way between driver and executors.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from sparkinesis.local import LocalServer
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
    rows: list[Row]
    """The rows in the order in which the tasks gave them."""

    @property
    def datas(self) -> list[bytes]:
        return [row["data"] for row in self.rows]


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

    def read(self, start: Any, end: Any, *, is_replay: bool = False) -> Batch:
        """Reads the batch (start, end] by readers that know only its pickled partitions.

        is_replay: by another planner's partitions, as after a crash: the tasks fetch all records.
        """
        rows: list[Row] = []
        planning = self._new_reader() if is_replay else self.reader
        for partition in planning.partitions(start, end):
            reader = self._new_reader()
            batches = list(reader.read(pickle.loads(pickle.dumps(partition))))
            table = pa.Table.from_batches(batches, USER_RECORD_SCHEMA)
            rows += table.to_pylist()
            self.rows_read += table.num_rows
        return Batch(start, end, rows)

    def next_batch(self) -> Batch | None:
        """Plan and read one batch and commit it; None when there is none."""
        start, end = self.plan()
        if start == end:
            return None
        batch = self.read(start, end)
        self.checkpoint = end
        return batch

    def batch(self) -> Batch:
        """The next batch, planned, read and committed; there is one."""
        batch = self.next_batch()
        assert batch is not None
        return batch

    def drain(self, between: Callable[[], None] = lambda: None) -> Iterator[Batch]:
        """Batches until there is none."""
        while (batch := self.next_batch()) is not None:
            yield batch
            between()

    def rest(self) -> list[bytes]:
        """The data of all rows that are there, in the order of their batches."""
        return [data for batch in self.drain() for data in batch.datas]


def query_of(server: LocalServer, stream: str = "s", **options: str) -> Query:
    """A query of a local server's stream, from its oldest record on."""
    where = {"streamName": stream, "endpoint": server.endpoint_url, "region": "us-east-1"}
    return Query(**{**where, "initialPosition": "trim_horizon", **options})


def _through_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


def late(batches: Iterable[Batch], disorder: timedelta = timedelta()) -> list[tuple[int, Any]]:
    """The rows that arrived before the newest row of an earlier batch, with the batch's number."""
    newest = datetime(1970, 1, 2, tzinfo=timezone.utc)
    found = []
    for number, batch in enumerate(batches):
        arrivals = [row["approximateArrivalTimestamp"] for row in batch.rows]
        found += [(number, at) for at in arrivals if at < newest - disorder]
        newest = max([newest, *arrivals])
    return found
