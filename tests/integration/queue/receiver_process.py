"""A receiver in a process of its own, which a test ends: writes a line for each record."""

from __future__ import annotations

import functools
import os
import sys

from sparkinesis.queue import QueueApplication, QueueOptions, QueueRecord

VISIBILITY = 20
"""Seconds: longer than a busy machine keeps a process from extending its holds."""


_PATH = "RECEIVER_PROCESS_FILE"


@functools.cache
def _file() -> int:
    return os.open(os.environ[_PATH], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(record: QueueRecord) -> None:
    # One write for each line: those of several processes do not mix.
    os.write(_file(), f"{os.getpid()} {record.data.decode()}\n".encode())


def main(endpoint: str, arn: str, path: str, *processes: str) -> None:
    os.environ[_PATH] = path
    QueueApplication(
        arn,
        handle,
        endpoint=endpoint,
        concurrency=32,
        options=QueueOptions(wait_time=1, visibility_timeout=VISIBILITY),
    ).run(processes=int(processes[0]) if processes else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
