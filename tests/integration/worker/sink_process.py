"""A worker process that stores a stream's records as Parquet files; a test kills it.

Usage: python -m tests.integration.worker.sink_process ENDPOINT STREAM FOLDER
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pyarrow as pa

from sparkinesis import Checkpointer, ProcessorShard, RecordBatch, RecordProcessor
from tests import pace
from tests.local_application import local_application

SCHEMA = pa.schema(
    [("shardId", pa.string()), ("sequenceNumber", pa.string()), ("data", pa.binary())]
)


class Storing(RecordProcessor):
    """The usual processor with a sink, which is due rather often."""

    def __init__(self, folder: Path, max_bytes: int, max_age: float = 60.0) -> None:
        self._folder = folder
        self._limits = (max_bytes, max_age)

    def initialize(self, shard: ProcessorShard) -> None:
        max_bytes, max_age = self._limits
        self.sink = shard.sink(self._folder, SCHEMA, max_bytes=max_bytes, max_age=max_age)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self.sink.write(batch.to_arrow().select(SCHEMA.names))
        if self.sink.is_due:
            checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def main(endpoint: str, stream: str, folder: str) -> None:
    local_application(
        stream,
        endpoint,
        functools.partial(Storing, Path(folder), 1000, 0.3),
        worker_id="the same each time",
        failover_time=pace.seconds(2.0),
        idle_time=0.25,
        max_records=50,
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
