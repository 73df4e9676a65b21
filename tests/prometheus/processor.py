"""The record processor of a run: counts what it is given, and fails now and then."""

from __future__ import annotations

import functools
import itertools
import os
import time
from pathlib import Path

from sparkinesis import Checkpointer, ProcessorShard, RecordBatch, RecordProcessor
from tests.prometheus.journal import Writer
from tests.prometheus.setting import SLOW, SLOW_SECONDS

FAIL_EVERY = 40
CHECKPOINT_EVERY = 7
"""Batches; so that a worker that is killed leaves something to be processed again."""


@functools.cache
def journal_of(folder: Path, worker_id: str) -> Writer:
    return Writer(folder / f"{worker_id}.jsonl")


class Processor(RecordProcessor):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal: Writer
        self._calls = itertools.count(1)

    def initialize(self, shard: ProcessorShard) -> None:
        self._journal = journal_of(self._folder, shard.worker_id)
        self._journal.write({"pid": os.getpid()})

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        call = next(self._calls)
        if (self._folder / SLOW).exists():
            time.sleep(SLOW_SECONDS)
        if call % FAIL_EVERY == 0:
            self._journal.write({"failed": call})
            raise RuntimeError("a failure on purpose")
        if call % CHECKPOINT_EVERY == 0:
            checkpointer.checkpoint()
        records = batch.records
        arrived = records[-1].approximate_arrival_timestamp
        assert batch.fetched_at is not None
        assert arrived is not None
        self._journal.write(
            {
                "numbers": [int(record.data) for record in records],
                "bytes": sum(len(record.data) for record in records),
                "behind": (batch.fetched_at - arrived).total_seconds(),
            }
        )

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
