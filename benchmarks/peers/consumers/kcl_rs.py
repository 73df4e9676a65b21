"""kcl-rs: a KCL in Rust with Python bindings."""

from __future__ import annotations

import functools
import signal
import threading
from typing import Any

from kcl_rs import CheckpointError, RecordProcessorBase, Scheduler

from benchmarks.peers.consumers.task import REGION, Pace, Tally, Task


class Counting(RecordProcessorBase):  # type: ignore[misc]
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pace = Pace()

    def initialize(self, initialize_input: Any) -> None:
        pass

    def process_records(self, process_records_input: Any) -> None:
        records = process_records_input.records
        if not records:
            return
        self._tally.add([record.binary_data for record in records])
        if self._pace.is_due():
            process_records_input.checkpointer.checkpoint()

    def lease_lost(self, lease_lost_input: Any) -> None:
        pass

    def shard_ended(self, shard_ended_input: Any) -> None:
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        try:
            shutdown_requested_input.checkpointer.checkpoint()
        except CheckpointError as error:
            print(error)


def main() -> None:
    task = Task.from_arguments()
    options: dict[str, Any] = {}
    if not task.fan_out:
        options["retrieval_mode"] = "POLLING"
        if task.idle_seconds is not None:
            options["idle_time_between_reads_millis"] = int(task.idle_seconds * 1000)
    scheduler = Scheduler(
        stream_name=task.stream,
        application_name=task.application,
        record_processor_factory=functools.partial(Counting, Tally(task)),
        worker_identifier=task.worker,
        region=REGION,
        endpoint_url=task.endpoint,
        initial_position="LATEST" if task.from_latest else "TRIM_HORIZON",
        **options,
    )
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    scheduler.start()
    ending.wait()
    scheduler.shutdown()


if __name__ == "__main__":
    main()
