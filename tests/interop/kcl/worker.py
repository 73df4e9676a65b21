"""One of our workers in its process.

Its arguments are the `Arguments`, in their order. The streams are the lines of ``FOLDER/streams``,
of which it takes the names; it finds the rest itself.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkinesis import (
    Application,
    Checkpointer,
    LeaseLostError,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    UserRecord,
    WorkerOptions,
)
from tests.interop.servers import REGION

EVERY = 2.0
"""Seconds between two checkpoints, so that a worker that is killed leaves something to repeat."""
STATE = b"half done"


class Writing(RecordProcessor):
    """Writes down what it is given, as ``JavaProcessor`` does.

    A record's data is ``KEY NUMBER STOP``. At a record with this worker's own STOP, the processor
    checkpoints just there and takes no more of the shard; ``prepare`` instead of a name prepares a
    checkpoint there, with a state.
    """

    def __init__(self, name: str, folder: Path, stop: str) -> None:
        self._name = name
        self._file = folder / f"{name}.jsonl"
        self._stop = stop
        self._shard = ""
        self._last: UserRecord | None = None
        self._is_stopped = False
        self._checkpoint_at = 0.0

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = f"{shard.stream_id}:{shard.id}"
        at = shard.checkpoint
        self._write({"from": [at.sequence_number, at.sub_sequence_number]})

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        taken: list[UserRecord] = []
        is_due = time.monotonic() >= self._checkpoint_at
        for record in batch.records:
            if self._is_stopped:
                break
            taken.append(record)
            stop = record.data.decode().split(" ")[2]
            self._is_stopped = stop in {self._stop, "prepare"}
            if self._is_stopped:
                is_due = stop != "prepare"
        if not taken:
            return
        self._last = taken[-1]
        parts = [record.data.decode().split(" ") for record in taken]
        self._write(
            {
                "records": [(key, int(number)) for key, number, _ in parts],
                "places": [(one.sequence_number, one.sub_sequence_number) for one in taken],
            }
        )
        if is_due:
            self._checkpoint(checkpointer, self._last)
        elif self._is_stopped:
            checkpointer.prepare(self._last, state=STATE)

    def lease_lost(self) -> None:
        self._write({"lost": True})

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self._write({"checkpoint": ["SHARD_END", 0]})

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self._write({"asked": True})
        if self._last is not None and not self._is_stopped:
            self._checkpoint(checkpointer, self._last)

    def _checkpoint(self, checkpointer: Checkpointer, at: UserRecord) -> None:
        self._checkpoint_at = time.monotonic() + EVERY
        try:
            checkpointer.checkpoint(at)
        except LeaseLostError:
            return
        self._write({"checkpoint": [at.sequence_number, at.sub_sequence_number]})

    def _write(self, more: dict[str, Any]) -> None:
        # CLOCK_MONOTONIC is one for all processes of a machine.
        line = {"at": time.monotonic(), "reader": self._name, "shard": self._shard, **more}
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Arguments:
    name: str
    endpoint: str
    application: str
    folder: str
    failover_millis: str
    stop: str
    cleanup: str
    """``clean``: delete the leases of finished shards; ``keep``: let them be."""
    balance: str


def main(given: Arguments) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    folder = Path(given.folder)

    def names() -> list[str]:
        lines = (folder / "streams").read_text(encoding="utf-8").splitlines()
        return [line.split(":")[1] for line in lines]

    # An older revision, which this program runs, too, knows no such option.
    balance: dict[str, Any] = {} if given.balance == "count" else {"balance": given.balance}
    Application(
        given.application,
        streams=names,
        processor=functools.partial(Writing, given.name, folder, given.stop),
        region=REGION,
        endpoint=given.endpoint,
        initial_position="trim_horizon",
        worker_id=given.name,
        options=WorkerOptions(
            failover_time=int(given.failover_millis) / 1000,
            **balance,
            handoff_timeout=15.0,
            idle_time=0.3,
            parent_poll_interval=1.0,
            cleanup_leases=given.cleanup == "clean",
        ),
    ).run()


if __name__ == "__main__":
    main(Arguments(*sys.argv[1:]))
