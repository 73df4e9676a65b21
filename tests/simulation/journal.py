"""What happened in a world, as its record processors saw it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from tests.simulation.scheduler import Scheduler

EPOCH_MS = 1_700_000_000_000
"""When a world begins, by the service's clock."""

Place: TypeAlias = tuple[str, int]
"""Of a user record: its sequence number and its sub-sequence number."""


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    process: str
    shard: str
    what: str
    about: Any = None
    reader: int = 0
    """Which record processor, counted from 1."""


@dataclass
class Journal:
    scheduler: Scheduler
    entries: list[Entry] = field(default_factory=list)
    handed: dict[str, dict[Place, float]] = field(default_factory=dict)
    """By shard and place, when a record was first given to a record processor."""
    processed: dict[str, float] = field(default_factory=dict)
    """By a record's data, when a processor was last done with it."""
    dead_letters: set[str] = field(default_factory=set)
    """The data of records that a dead-letter target has taken."""
    claims: dict[str, ExtendedSequenceNumber] = field(default_factory=dict)
    """By shard, the farthest that a processor has asked to be checkpointed."""
    readers: int = 0

    def write(self, shard: str, what: str, about: Any = None, reader: int = 0) -> None:
        scheduler = self.scheduler
        if scheduler.has_ended:
            return
        task = scheduler.current
        name = task.process.name if task is not None else "-"
        self.entries.append(Entry(scheduler.now, name, shard, what, about, reader))

    def now_ms(self) -> int:
        """The service's clock."""
        return EPOCH_MS + int(self.scheduler.now * 1000)

    def claim(self, shard: str, at: ExtendedSequenceNumber) -> None:
        if shard not in self.claims or self.claims[shard] <= at:
            self.claims[shard] = at
