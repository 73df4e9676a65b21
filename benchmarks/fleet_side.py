"""One side of the comparison of a fleet with one process: an application that does nothing.

    python -m benchmarks.fleet_side ENDPOINT STREAM APPLICATION FOLDER RECORDS WORKERS

WORKERS: of the fleet; 0 is the process itself. RECORDS are in each shard. Files in FOLDER tell
which shards are listened to; when there is one called "go", all are read from their beginning.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sparkinesis import (
    Application,
    Checkpointer,
    FleetOptions,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)

CHECKPOINT_SECONDS = 1.0
REGION = "us-east-1"


class Nothing(RecordProcessor):
    """Counts and checkpoints; ``expected``: the records in each shard."""

    def __init__(self, folder: Path, expected: int) -> None:
        self._folder = folder
        self._expected = expected
        self._is_ready = self._has_begun = False
        self._records = 0
        self._first: dict[str, float] = {}
        self._checkpoint_at = 0.0

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if not self._has_begun:
            self._wait_for_all(checkpointer)
        elif len(batch):
            self._process(batch, checkpointer)

    def _wait_for_all(self, checkpointer: Checkpointer) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._write("ready", worker=self._shard.worker_id)
        if (self._folder / "go").exists():
            checkpointer.reset("TRIM_HORIZON")
            self._has_begun = True

    def _process(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        now = time.monotonic()
        if not self._first:
            self._first = {"first": now, "cpu_first": time.process_time()}
        records = self._records + len(batch)
        if now >= self._checkpoint_at or records == self._expected:
            checkpointer.checkpoint()  # if it raises, the batch comes again
            self._checkpoint_at = now + CHECKPOINT_SECONDS
        self._records = records
        if records == self._expected:
            last = {"last": time.monotonic(), "cpu_last": time.process_time()}
            self._write("done", worker=self._shard.worker_id, **self._first, **last)

    def _write(self, kind: str, **what: Any) -> None:
        unfinished = self._folder / f"{self._shard.worker_id}-{self._shard.id}"
        unfinished.write_text(json.dumps(what))
        unfinished.rename(self._folder / f"{kind}-{self._shard.id}")


def run_fleet(application: Application, workers: int) -> None:
    """Runs the fleet until SIGTERM."""
    from benchmarks.source import spark_session  # noqa: PLC0415 - the other side needs no PySpark

    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    spark = spark_session(f"local[{workers}]")
    try:
        with application.run(spark, workers=workers, fleet=FleetOptions(log_level="WARNING")):
            ending.wait()
    finally:
        spark.stop()


def main(arguments: list[str]) -> None:
    endpoint, stream, application, folder, records, workers = arguments
    nothing = Application(
        application,
        stream,
        functools.partial(Nothing, Path(folder), int(records)),
        region=REGION,
        endpoint=endpoint,
        options=WorkerOptions(idle_time=0.25, call_even_for_empty_batches=True),
    )
    if int(workers):
        run_fleet(nothing, int(workers))
    else:
        nothing.run()


if __name__ == "__main__":
    main(sys.argv[1:])
