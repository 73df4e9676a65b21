"""The journal of a world: each call of its record processors, and each event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from tests.simulation.counting import Counts
from tests.simulation.own_store import OwnStore
from tests.simulation.scheduler import Scheduler

EPOCH_MS = 1_700_000_000_000
"""When a world begins, by the service's clock."""

Place: TypeAlias = tuple[str, int]
"""A user record's sequence number and sub-sequence number."""


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    process: str
    shard: str
    """Of several streams, the key of its lease, by what its record processor is told."""
    what: str
    about: Any = None
    reader: int = 0
    """The number of the record processor, counted from 1."""


@dataclass
class Journal:
    scheduler: Scheduler
    entries: list[Entry] = field(default_factory=list)
    handed: dict[str, dict[Place, float]] = field(default_factory=dict)
    """The time at which each record was first given to a record processor, by shard and place."""
    processed: dict[str, float] = field(default_factory=dict)
    """The time at which a processor last finished a record, by the record's data."""
    first_processed: dict[str, float] = field(default_factory=dict)
    """The time at which a processor first finished a record, or said so by a checkpoint."""
    dead_letters: set[str] = field(default_factory=set)
    """The data of records that a dead-letter target has taken."""
    claims: dict[str, ExtendedSequenceNumber] = field(default_factory=dict)
    """The farthest checkpoint that a processor has requested, by shard."""
    tags: dict[str, str] = field(default_factory=dict)
    """What the data of each stream's records begins with, by the stream's identifier."""
    store: OwnStore = field(default_factory=OwnStore)
    """Of applications that have a store of their own."""
    readers: int = 0
    counts: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = Counts(self.scheduler)

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
