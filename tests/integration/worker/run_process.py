"""Runs an application as a user's program does; the test sends it signals.

Usage: python -m tests.integration.worker.run_process ENDPOINT STREAM polite|stuck|divided

Prints a line when the first records of a shard have come. ``stuck``: never returns from
process_records. ``divided``: the record ``stuck`` does not let it return, and the record ``last``
requests the shutdown then.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests import pace
from tests.local_application import local_application


class Processor(RecordProcessor):
    is_stuck = False
    one_is_stuck = threading.Event()
    shard: ProcessorShard

    def initialize(self, shard: ProcessorShard) -> None:
        self.shard = shard

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        print("ready", flush=True)
        if batch.records[-1].data == b"last":
            self.one_is_stuck.wait()
            self.shard.request_shutdown()
        if self.is_stuck or batch.records[-1].data == b"stuck":
            self.one_is_stuck.set()
            threading.Event().wait()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def main(endpoint: str, stream: str, manner: str) -> None:
    Processor.is_stuck = manner == "stuck"
    limit = 0.5 if manner == "divided" else 30
    options: dict[str, Any] = {"failover_time": pace.seconds(2.0), "idle_time": 0.25}
    local_application(stream, endpoint, Processor, shutdown_timeout=limit, **options).run()
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
