"""sparkinesis' record processors."""

from __future__ import annotations

import functools
import time
from dataclasses import fields, replace
from typing import Any

from benchmarks.peers.consumers.task import ID_BYTES, REGION, Pace, Tally, Task
from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions


class Objects(RecordProcessor):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pace = Pace()

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self._tally.add([record.data for record in batch.records])
        if self._pace.is_due():
            checkpointer.checkpoint()


class Arrow(RecordProcessor):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pace = Pace()

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        import pyarrow.compute as pc  # noqa: PLC0415 - objects need no compute functions

        at = time.monotonic()
        data = batch.to_arrow().column("data")
        ids = pc.binary_slice(data, 0, ID_BYTES).buffers()[-1]
        size = pc.sum(pc.binary_length(data)).as_py()
        self._tally.add_ids(at, bytes(memoryview(ids)[: ID_BYTES * len(data)]), size)
        if self._pace.is_due():
            checkpointer.checkpoint()


def _pace() -> dict[str, Any]:
    """The most calls that the service allows. Older revisions have no option for them."""
    is_option = any(each.name == "shard_calls_per_second" for each in fields(WorkerOptions))
    return {"shard_calls_per_second": 5} if is_option else {}


def main() -> None:
    task = Task.from_arguments()
    options = WorkerOptions(retrieval="efo" if task.fan_out else "polling")
    if task.idle_seconds is not None:
        # As the others, which leave no call of a shard to other readers.
        options = replace(options, idle_time=task.idle_seconds, **_pace())
    Application(
        task.application,
        task.stream,
        functools.partial(Arrow if task.arrow else Objects, Tally(task)),
        REGION,
        task.endpoint,
        worker_id=task.worker,
        initial_position="latest" if task.from_latest else "trim_horizon",
        options=options,
    ).run()


if __name__ == "__main__":
    main()
