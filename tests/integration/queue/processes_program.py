"""A program that consumes a queue in processes; what its handler gets is written down as it comes.

Usage: python -m tests.integration.queue.processes_program ENDPOINT QUEUE EVENTS [NAME=VALUE ...]
(of `QueueApplication`, of `QueueOptions` in ``options``, or ``processes``; ``stops``: by `Stop`)
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
import time
from typing import Any

from sparkinesis import Stop
from sparkinesis.queue import QueueApplication, QueueOptions, QueueRecord

_EVENTS = "QUEUE_PROGRAM_EVENTS"


@functools.cache
def _file() -> int:
    """The file of this process. One write for each line: those of a killed process are there."""
    return os.open(os.environ[_EVENTS], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(record: QueueRecord) -> None:
    """Do what a record says, at its first delivery."""
    data, count = record.data.decode(), record.receive_count
    line = {"at": time.monotonic(), "worker": os.getpid(), "data": data, "count": count}
    os.write(_file(), json.dumps(line).encode() + b"\n")
    if data == "hang" and count == 1:
        threading.Event().wait()
    if data == "fail":
        raise ValueError("This record cannot be handled.")


def main(endpoint: str, queue: str, events: str, *more: str) -> None:
    logging.basicConfig(level=logging.INFO, format="supervisor: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    os.environ[_EVENTS] = events
    given: dict[str, Any] = {
        name: json.loads(value) for name, _, value in (each.partition("=") for each in more)
    }
    processes = given.pop("processes", 2)
    if given.pop("stops", False):
        given["on_error"] = Stop()
    options = QueueOptions(**{"wait_time": 1, **given.pop("options", {})})
    QueueApplication(queue, handle, endpoint=endpoint, options=options, **given).run(
        processes=processes
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
