"""A program that runs its workers in processes; what they do is written down as it happens.

Usage: python -m tests.integration.worker.processes_program ENDPOINT STREAM EVENTS FAILOVER_TIME
[NAME=VALUE ...] (of `Application`, of `WorkerOptions`, or ``processes``)
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
from typing import Any

from sparkinesis.application import Application
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests.integration.worker.fleet_process import Log, Processor

_EVENTS = "PROCESSES_PROGRAM_EVENTS"


@functools.cache
def _log() -> Log:
    """The log of this process."""
    return Log(os.environ[_EVENTS], str(os.getpid()))


def processor() -> RecordProcessor:
    return Processor(_log())


class Commanded(Processor):
    """Does what a record says."""

    def __init__(self) -> None:
        super().__init__(_log())

    def initialize(self, shard: ProcessorShard) -> None:
        super().initialize(shard)
        self._request_shutdown = shard.request_shutdown

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        super().process_records(batch, checkpointer)
        for record in batch.records:
            if record.data == b"shut down":
                self._request_shutdown()
            if record.data == b"hang":
                threading.Event().wait()
            if record.data == b"exit":
                os._exit(3)


def refused() -> RecordProcessor:
    """No processor: each worker meets the same error."""
    return 5  # type: ignore[return-value]


def main(endpoint: str, stream: str, events: str, failover_time: str, *more: str) -> None:
    logging.basicConfig(level=logging.INFO, format="supervisor: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    os.environ[_EVENTS] = events
    given: dict[str, Any] = {
        name: json.loads(value) for name, _, value in (each.partition("=") for each in more)
    }
    processes = given.pop("processes", 2)
    options = {
        "failover_time": float(failover_time),
        "handoff_timeout": float(failover_time),
        "idle_time": 0.3,
        "parent_poll_interval": 1.0,
        "audit_interval": 5.0,
        "cleanup_interval": 5.0,
        **given.pop("options", {}),
    }
    arguments = {
        "name": stream,
        "stream": stream,
        "processor": "tests.integration.worker.processes_program:processor",
        "region": "us-east-1",
        "endpoint": endpoint,
        "initial_position": "trim_horizon",
        "options": WorkerOptions(**options),
        **given,
    }
    Application(**arguments).run(processes=processes)
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
