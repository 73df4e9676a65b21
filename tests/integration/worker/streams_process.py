"""One worker process of an application of several streams, which come and go.

Usage: python -m tests.integration.worker.streams_process ENDPOINT NAME WORKER_ID FOLDER
FAILOVER_TIME

The file ``streams`` of the folder has the streams' names, one a line; it is read every second or
two. The worker appends to the file WORKER_ID.log what it processes, before it checkpoints.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

from sparkinesis.application import Application
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.lifecycle.streams import several_streams
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processor import ProcessorShard, RecordProcessor


class Processor(RecordProcessor):
    def __init__(self, log: int) -> None:
        self._log = log
        self._stream: str | None = None

    def initialize(self, shard: ProcessorShard) -> None:
        self._stream = shard.stream_id

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        data = [record.data.decode() for record in batch.records]
        line = {"at": time.monotonic(), "stream": self._stream, "data": data}
        os.write(self._log, json.dumps(line).encode() + b"\n")  # one write, which a kill -9 keeps
        checkpointer.checkpoint()


def main(endpoint: str, name: str, worker_id: str, folder: str, failover_time: str) -> None:
    several_streams.ASK_EVERY = 1.5
    several_streams._RETRY = (0.5, 3.0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    log = os.open(Path(folder) / f"{worker_id}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    worker = Application(
        name,
        None,
        lambda: Processor(log),
        streams=lambda: (Path(folder) / "streams").read_text().split(),
        region="us-east-1",
        endpoint=endpoint,
        initial_position="trim_horizon",
        worker_id=worker_id,
        options=WorkerOptions(
            failover_time=float(failover_time),
            handoff_timeout=float(failover_time),
            idle_time=0.3,
            parent_poll_interval=1.0,
            audit_interval=5.0,
            cleanup_interval=5.0,
        ),
    ).worker()
    with graceful_on_signals(worker):
        worker.start()
        worker.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
