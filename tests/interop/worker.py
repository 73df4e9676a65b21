"""One worker in its process: ``... tests.interop.worker NAME KINESIS DYNAMODB STREAM FOLDER``."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from sparkinesis import (
    Application,
    Checkpointer,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from tests.interop.servers import REGION

FAILOVER_TIME = 6.0
CHECKPOINT_EVERY = 3.0
"""Seconds; so that a worker that is killed leaves something to be processed again."""


class Writing(RecordProcessor):
    """Writes down what it is given, and when that is checkpointed, in lines that survive a kill."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._file = folder / f"{name}.jsonl"
        self._shard = ""
        self._checkpoint_at = 0.0

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard.id

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        records = [json.loads(record.data) for record in batch.records]
        self._write(records=[(one["key"], one["number"]) for one in records])
        if time.monotonic() >= self._checkpoint_at:
            self._checkpoint(checkpointer)
            self._checkpoint_at = time.monotonic() + CHECKPOINT_EVERY

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        self._checkpoint(checkpointer)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self._checkpoint(checkpointer)

    def _checkpoint(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self._write()

    def _write(self, **more: Any) -> None:
        # CLOCK_MONOTONIC is one for all processes of a machine.
        line = {"at": time.monotonic(), "reader": self._name, "shard": self._shard, **more}
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def main(name: str, kinesis: str, dynamodb: str, stream: str, folder: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    Application(
        stream,
        stream,
        functools.partial(Writing, name, Path(folder)),
        region=REGION,
        endpoint=kinesis,
        dynamodb_endpoint=dynamodb,
        initial_position="trim_horizon",
        worker_id=name,
        options=WorkerOptions(
            failover_time=FAILOVER_TIME, handoff_timeout=15.0, parent_poll_interval=2.0
        ),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
