"""A receiver in a process of its own, which a test kills: writes a line for each record."""

from __future__ import annotations

import functools
import os
import sys
import time

from sparkinesis.queue import QueueApplication, QueueOptions, QueueRecord

VISIBILITY = 20
"""Seconds: longer than a busy machine keeps a process from extending its holds."""


_PATH = "RECEIVER_PROCESS_FILE"


@functools.cache
def _file() -> int:
    return os.open(os.environ[_PATH], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(record: QueueRecord) -> None:
    # One write for each line: what a killed process had written is there.
    data = record.data.decode()
    os.write(_file(), f"{os.getpid()} {time.monotonic():.6f} {data}\n".encode())


def main(endpoint: str, arn: str, path: str, concurrency: str, *processes: str) -> None:
    os.environ[_PATH] = path
    QueueApplication(
        arn,
        handle,
        endpoint=endpoint,
        concurrency=int(concurrency),
        options=QueueOptions(wait_time=1, visibility_timeout=VISIBILITY),
    ).run(processes=int(processes[0]) if processes else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
