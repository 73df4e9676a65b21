"""A receiver in a process of its own, which a test kills: writes a line for each record."""

from __future__ import annotations

import os
import sys
import time

from sparkinesis.queue import QueueApplication, QueueOptions, QueueRecord

VISIBILITY = 20
"""Seconds: longer than a busy machine keeps a process from extending its holds."""


def main(endpoint: str, arn: str, path: str, concurrency: str) -> None:
    # One write for each line: what a killed process had written is there.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def handle(record: QueueRecord) -> None:
        data = record.data.decode()
        os.write(file, f"{os.getpid()} {time.monotonic():.6f} {data}\n".encode())

    QueueApplication(
        arn,
        handle,
        endpoint=endpoint,
        concurrency=int(concurrency),
        options=QueueOptions(wait_time=1, visibility_timeout=VISIBILITY),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
