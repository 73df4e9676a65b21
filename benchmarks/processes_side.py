"""An application whose processors take 2 ms of CPU a record; a benchmark counts what it does.

python -m benchmarks.processes_side ENDPOINT STREAM APPLICATION FILE [PROCESSES]

Each record adds a byte to the file. Without PROCESSES, one worker runs in this process.
"""

from __future__ import annotations

import os
import sys
import time

from sparkinesis import Application, RecordBatch, WorkerOptions

_SECONDS = 0.002


def work(batch: RecordBatch) -> None:
    """Take the CPU time that each record takes."""
    file = os.open(os.environ["PROCESSES_SIDE"], os.O_WRONLY | os.O_APPEND)
    for _ in batch:
        until = time.thread_time() + _SECONDS
        while time.thread_time() < until:
            pass
        os.write(file, b"x")
    os.close(file)


def main(endpoint: str, stream: str, application: str, file: str, *processes: str) -> None:
    os.environ["PROCESSES_SIDE"] = file
    Application(
        application,
        stream,
        work,
        "us-east-1",
        endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(max_records=100, checkpoint_seconds=1.0, failover_time=3.0),
    ).run(processes=int(processes[0]) if processes else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
