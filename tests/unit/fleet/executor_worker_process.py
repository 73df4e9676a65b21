"""A worker of a fleet in a process of its own, as a task of Spark has it; tests send it signals.

Usage: python -m tests.unit.fleet.executor_worker_process PORT ENDPOINT STREAM, the secret and
the certificate (hex, a line each) by stdin.
"""

from __future__ import annotations

import sys

from sparkinesis.application import SupervisedApplication
from sparkinesis.fleet.channel_tls import WorkerCredentials
from sparkinesis.fleet.executor_worker import ExecutorWorker, SparkTask, WorkerSpec
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.processors.processor import RecordProcessor
from tests.local_application import local_application


class Processor(RecordProcessor):
    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        pass

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def main(port: int, endpoint: str, stream: str) -> None:
    application = local_application(stream, endpoint, Processor, failover_time=2.0, idle_time=0.25)
    credentials = WorkerCredentials(*(bytes.fromhex(sys.stdin.readline()) for _ in range(2)))
    supervised = SupervisedApplication.of(application)
    spec = WorkerSpec(supervised, "127.0.0.1", port, credentials, 0.2, 60.0, "DEBUG")
    ExecutorWorker(spec, 1, 0, SparkTask(2, 3, 0)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
