"""One worker process of a fleet: processes and checkpoints, and writes down both as it happens.

Usage: python -m tests.integration.worker.fleet_process ENDPOINT STREAM WORKER_ID LOG FAILOVER_TIME
RETRIEVAL
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from typing import Any

from sparkinesis.errors import LeaseLostError
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests.local_application import local_application

_acquisitions = itertools.count()


class Log:
    """Lines that survive a kill -9: each is one write of its own."""

    def __init__(self, path: str, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._worker = worker

    def write(self, event: str, **more: Any) -> None:
        line = {"at": time.monotonic(), "worker": self._worker, "event": event, **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Processor(RecordProcessor):
    def __init__(self, log: Log) -> None:
        self._log = log
        self._acquisition = next(_acquisitions)
        self._shard = ""

    def _write(self, event: str, **more: Any) -> None:
        self._log.write(event, shard=self._shard, acquisition=self._acquisition, **more)

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard.id
        self._write("initialize", checkpoint=str(shard.checkpoint))

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self._write("records", data=[record.data.decode() for record in batch.records])
        self._checkpoint(checkpointer, str(batch.last))

    def _checkpoint(self, checkpointer: Checkpointer, at: str) -> None:
        began = time.monotonic()
        try:
            checkpointer.checkpoint()
        except LeaseLostError:
            self._write("refused", checkpoint=at)
            raise
        self._write("checkpoint", checkpoint=at, began=began)

    def lease_lost(self) -> None:
        self._write("lease_lost")

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        self._checkpoint(checkpointer, "SHARD_END")

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self._write("shutdown_requested")


def main(arguments: list[str]) -> None:
    endpoint, stream, worker_id, path, failover_time, retrieval = arguments
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s %(message)s"
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)
    log = Log(path, worker_id)
    application = local_application(
        stream,
        endpoint,
        lambda: Processor(log),
        worker_id=worker_id,
        failover_time=float(failover_time),
        retrieval=retrieval,
        handoff_timeout=float(failover_time),
        idle_time=0.3,
        parent_poll_interval=1.0,
        audit_interval=5.0,
        cleanup_interval=5.0,
    )
    worker = application.worker()
    with graceful_on_signals(worker.shutdown, worker.log_place):
        worker.start()
        log.write("start")
        worker.wait()
    log.write("end")


if __name__ == "__main__":
    main(sys.argv[1:])
