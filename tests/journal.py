"""A record processor that writes down what happens to it, and lets a test wait for that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests import pace

PATIENCE = pace.seconds(60.0)
"""Seconds that a test waits for what should take a few: only a failure takes as long."""


@dataclass
class Journal:
    """The calls of all processors of a test, in order, from all threads."""

    entries: list[tuple[str, str, Any]] = field(default_factory=list)
    """(shard, call, what was given)."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, shard: str, call: str, what: Any = None) -> None:
        with self.changed:
            self.entries.append((shard, call, what))
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition``, which is looked at after each entry, holds."""
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), self.entries

    def wait_for_data(self, *expected: bytes) -> None:
        """Wait until at least these have been processed."""
        self.wait(lambda: set(expected) <= set(self.data()))

    def records(self, shard: str | None = None) -> list[UserRecord]:
        return [
            record
            for where, call, batch in list(self.entries)
            if call == "process_records" and shard in {None, where}
            for record in batch.records
        ]

    def data(self, shard: str | None = None) -> list[bytes]:
        return [record.data for record in self.records(shard)]

    def calls(self, *names: str) -> list[tuple[str, str]]:
        """(shard, call), of those named or of all."""
        return [(s, call) for s, call, _ in list(self.entries) if not names or call in names]


class Journaling(RecordProcessor):
    """Writes down each call; what it does in them is given by functions of (self, argument).

    Without any it checkpoints nothing but the shard's end.
    """

    def __init__(
        self,
        journal: Journal,
        on_records: Callable[[RecordBatch, Checkpointer], None] | None = None,
        on_shutdown: Callable[[Checkpointer], None] | None = None,
        on_initialize: Callable[[ProcessorShard], ExtendedSequenceNumber | None] | None = None,
    ) -> None:
        self.journal = journal
        self.shard: ProcessorShard
        self._on_records = on_records
        self._on_shutdown = on_shutdown
        self._on_initialize = on_initialize
        self._busy = threading.Lock()

    def initialize(self, shard: ProcessorShard) -> ExtendedSequenceNumber | None:
        self.shard = shard
        self.journal.write(shard.id, "initialize", shard)
        return None if self._on_initialize is None else self._on_initialize(shard)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        assert self._busy.acquire(blocking=False), "two calls for one shard overlap"
        try:
            if self._on_records is not None:
                self._on_records(batch, checkpointer)
            self.journal.write(self.shard.id, "process_records", batch)
        except BaseException as error:
            self.journal.write(self.shard.id, "failed", (batch, error))
            raise
        finally:
            self._busy.release()

    def lease_lost(self) -> None:
        self.journal.write(self.shard.id, "lease_lost")

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        # Before it takes effect: another thread may begin with a child as soon as it does.
        self.journal.write(self.shard.id, "shard_ended")
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        if self._on_shutdown is not None:
            self._on_shutdown(checkpointer)
        self.journal.write(self.shard.id, "shutdown_requested")
