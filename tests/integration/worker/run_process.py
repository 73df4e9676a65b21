"""Runs an application as a user's program does; the test sends it signals.

Usage: python -m tests.integration.worker.run_process ENDPOINT STREAM polite|stuck

Prints a line when the first records have come. ``stuck``: never returns from process_records.
"""

from __future__ import annotations

import sys
import threading

from sparkinesis.worker.application import Application
from sparkinesis.worker.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processor import RecordProcessor
from tests import pace


class Processor(RecordProcessor):
    is_stuck = False

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        print("ready", flush=True)
        if self.is_stuck:
            threading.Event().wait()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def main(endpoint: str, stream: str, manner: str) -> None:
    Processor.is_stuck = manner == "stuck"
    Application(
        stream,
        stream,
        Processor,
        region="us-east-1",
        endpoint=endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(failover_time=pace.seconds(2.0), idle_time=0.2),
    ).run()
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
