"""What happened in a world, as its record processors saw it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.worker.batch import RecordBatch, UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.processor import ProcessorShard, RecordProcessor
from tests.simulation.history import Behaviour
from tests.simulation.scheduler import Process, Scheduler


class SimulatedFailureError(Exception):
    """Of a record processor."""


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    process: str
    shard: str
    what: str
    about: Any = None


@dataclass
class Journal:
    scheduler: Scheduler
    entries: list[Entry] = field(default_factory=list)
    handed: dict[str, dict[str, float]] = field(default_factory=dict)
    """By shard and sequence number, when a record was first given to a record processor."""
    processed: set[str] = field(default_factory=set)
    """The data of records that a processor is done with."""
    claims: dict[str, ExtendedSequenceNumber] = field(default_factory=dict)
    """By shard, the farthest that a processor has asked to be checkpointed."""

    def write(self, shard: str, what: str, about: Any = None) -> None:
        scheduler = self.scheduler
        if scheduler.has_ended:
            return
        task = scheduler.current
        name = task.process.name if task is not None else "-"
        self.entries.append(Entry(scheduler.now, name, shard, what, about))


class SimulatedProcessor(RecordProcessor):
    """Writes down what it is given, and behaves as a history says."""

    def __init__(self, journal: Journal, behaviour: Behaviour, process: Process) -> None:
        self._journal = journal
        self._behaviour = behaviour
        self._process = process
        self._scheduler = journal.scheduler
        self._is_busy = False
        self._shard = ""
        self._last: ExtendedSequenceNumber | None = None
        """The last record of the last batch that it is done with."""

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard.id
        self._call("initialize", shard.checkpoint, lambda: None)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        records = batch.records
        if not records:
            return
        handed = self._journal.handed.setdefault(self._shard, {})
        for record in records:
            handed.setdefault(record.sequence_number, self._scheduler.now)
        numbers = [record.sequence_number for record in records]
        self._call("records", numbers, lambda: self._process_all(records, checkpointer))
        self._journal.processed.update(record.data.decode() for record in records)
        self._journal.write(self._shard, "processed", numbers)
        self._last = records[-1].position

    def _process_all(self, records: list[UserRecord], checkpointer: Checkpointer) -> None:
        chance, behaviour = self._scheduler.rng.random, self._behaviour
        if chance() < behaviour.slow:
            self._scheduler.sleep(behaviour.slowest * chance())
        if chance() < behaviour.odd_checkpoint:
            self._checkpoint(checkpointer, records[: 1 + int(chance() * len(records))])
        if chance() < behaviour.fail:
            raise SimulatedFailureError
        if chance() < behaviour.checkpoint:
            self._checkpoint(checkpointer, records, explicit=chance() < 0.5)

    def _checkpoint(
        self, checkpointer: Checkpointer, done: list[UserRecord], *, explicit: bool = True
    ) -> None:
        at = done[-1]
        self._claim(at.position)
        # Who checkpoints says so. Whether what fails behind it is given again shows elsewhere.
        self._journal.processed.update(record.data.decode() for record in done)
        if self._scheduler.rng.random() < self._behaviour.prepare:
            checkpointer.prepare(at).checkpoint()
        elif explicit:
            checkpointer.checkpoint(at)
        else:
            checkpointer.checkpoint()
        self._journal.write(self._shard, "checkpointed", at.sequence_number)

    def _claim(self, at: ExtendedSequenceNumber) -> None:
        claims = self._journal.claims
        if self._shard not in claims or claims[self._shard] <= at:
            claims[self._shard] = at

    def lease_lost(self) -> None:
        self._call("lease_lost", None, lambda: None)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        def end() -> None:
            self._claim(ExtendedSequenceNumber("SHARD_END"))
            if self._scheduler.rng.random() < self._behaviour.fail:
                raise SimulatedFailureError
            checkpointer.checkpoint()

        self._call("shard_ended", None, end)

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        def leave() -> None:
            if self._behaviour.checkpoint_at_shutdown:
                if self._last is not None:
                    self._claim(self._last)
                checkpointer.checkpoint()

        self._call("shutdown_requested", None, leave)

    def _call(self, what: str, about: Any, do: Callable[[], None]) -> None:
        if self._is_busy:
            self._journal.write(self._shard, "overlap", what)
        self._is_busy = True
        self._journal.write(self._shard, what, about)
        try:
            do()
        except (SimulatedFailureError, SparkinesisError) as error:
            self._journal.write(self._shard, "raised", type(error).__name__)
            raise
        finally:
            self._is_busy = False
