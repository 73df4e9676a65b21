"""What a consumer is told, and how it tells what it has received."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ID_BYTES = 8
"""Each record begins with a number of its own, of so many bytes in the machine's order."""
CHECKPOINT_SECONDS = 1.0
REGION = "us-east-1"
TASK_VARIABLE = "PEERS_TASK"


@dataclass(frozen=True)
class Task:
    endpoint: str
    stream: str
    application: str
    """The application's name, and that of its lease table."""
    worker: str
    folder: str
    """The folder in which the consumer tells what it receives."""
    fan_out: bool = False
    aggregated: bool = False
    arrow: bool = False
    idle_seconds: float | None = None
    """The pause between two reads of a shard; None: the peer's default."""
    from_latest: bool = False
    is_backlog: bool = False
    """Whether throughput is measured: peers that limit their pace by default are told not to."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_arguments(cls) -> Task:
        return cls.of(sys.argv[1])

    @classmethod
    def of(cls, text: str) -> Task:
        return cls(**json.loads(text))


class Tally:
    """The consumer's account: the numbers of the records in a file, each batch as a line in a pipe.

    All peers pay the same for it: a list and a join for each batch, a slice for each record.
    """

    def __init__(self, task: Task) -> None:
        folder = Path(task.folder)
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._ids = os.open(folder / f"ids-{os.getpid()}", flags)
        self._pipe = os.open(folder / "batches", os.O_WRONLY)

    def add(self, data: Sequence[bytes], at: float | None = None) -> None:
        """Count a batch by the data of its records; ``at``: the instant it came, default: now."""
        at = time.monotonic() if at is None else at
        ids = b"".join([each[:ID_BYTES] for each in data])
        self.add_ids(at, ids, sum(map(len, data)))

    def add_ids(self, at: float, ids: bytes, size: int) -> None:
        """Count a batch that arrived at the instant ``at``; ``size``: the bytes of its data."""
        records = len(ids) // ID_BYTES
        with self._lock:
            os.write(self._ids, ids)
            batch = [os.getpid(), records, size, at, time.monotonic(), time.process_time()]
            os.write(self._pipe, json.dumps(batch).encode() + b"\n")


class Pace:
    """Says when a shard's next checkpoint is due: once a second, first with the first batch."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + CHECKPOINT_SECONDS
        return True
