"""A shard's process of amazon_kclpy; its task is in the environment, for the daemon starts it."""

from __future__ import annotations

import os
from typing import Any

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

from benchmarks.peers.consumers.task import TASK_VARIABLE, Pace, Tally, Task


class Counting(processor.RecordProcessorBase):  # type: ignore[misc]
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
        pass


if __name__ == "__main__":
    kcl.KCLProcess(Counting(Tally(Task.of(os.environ[TASK_VARIABLE])))).run()
