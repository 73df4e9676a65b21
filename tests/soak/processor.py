"""The record processor of a soak: writes down what it is given, in lines that survive a kill -9.

A file for each worker, a line for each thing that happens, one write each. Records are told by
their keys and numbers, ``key-3:17-19`` for three in a row.
"""

from __future__ import annotations

import functools
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sparkinesis import Checkpointer, ProcessorShard, RecordBatch, RecordProcessor

CHECKPOINT_EVERY = 2.0
"""Seconds; so that a worker that is killed leaves something to be processed again."""

KeyedNumber = tuple[str, int]


class Processor(RecordProcessor):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._place: dict[str, Any] = {}
        self._checkpoint_at = 0.0

    def initialize(self, shard: ProcessorShard) -> None:
        self._place = {
            "worker": shard.worker_id,
            "pid": os.getpid(),
            "shard": shard.id,
            "acquisition": uuid.uuid4().hex[:12],
        }
        self._checkpoint_at = time.monotonic() + CHECKPOINT_EVERY
        self._write("initialize", checkpoint=str(shard.checkpoint))

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        columns = batch.to_arrow()
        numbers = [_keyed_number(data) for data in columns.column("data").to_pylist()]
        first = batch.slice(0, 1).last
        self._write("records", first=str(first), last=str(batch.last), runs=" ".join(runs(numbers)))
        if time.monotonic() >= self._checkpoint_at:
            self._checkpoint(checkpointer, str(batch.last))

    def _checkpoint(self, checkpointer: Checkpointer, at: str) -> None:
        began = time.monotonic()
        checkpointer.checkpoint()
        self._write("checkpoint", checkpoint=at, began=began)
        self._checkpoint_at = time.monotonic() + CHECKPOINT_EVERY

    def lease_lost(self) -> None:
        self._write("lease_lost")

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        self._checkpoint(checkpointer, "SHARD_END")

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self._write("let go")

    def _write(self, event: str, **more: Any) -> None:
        line = {"at": time.monotonic(), "event": event, **self._place, **more}
        file = _opened(str(Path(self._folder, f"{self._place['worker']}.jsonl")))
        os.write(file, json.dumps(line).encode() + b"\n")


@functools.cache
def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _keyed_number(data: bytes) -> KeyedNumber:
    key, number, _ = data.decode().split(":")
    return key, int(number)


def runs(numbers: Iterable[KeyedNumber]) -> Iterator[str]:
    """``key:first-last`` for numbers of a key that follow each other, else ``key:number``."""
    open_run: tuple[str, int, int] | None = None
    for key, number in numbers:
        if open_run is not None and (key, number) == (open_run[0], open_run[2] + 1):
            open_run = (key, open_run[1], number)
            continue
        if open_run is not None:
            yield _run(*open_run)
        open_run = (key, number, number)
    if open_run is not None:
        yield _run(*open_run)


def _run(key: str, first: int, last: int) -> str:
    return f"{key}:{first}" if first == last else f"{key}:{first}-{last}"


def numbers_of(text: str) -> Iterator[KeyedNumber]:
    """The keys and numbers of `runs`, in order."""
    for run in text.split():
        key, _, span = run.partition(":")
        first, _, last = span.partition("-")
        yield from ((key, number) for number in range(int(first), int(last or first) + 1))
