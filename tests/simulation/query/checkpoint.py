"""The state that outlives a query's processes: Spark's checkpoint, and the sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class RowId(NamedTuple):
    """The identity of a row, wherever and however often it is read."""

    stream: str
    shard: str
    sequence_number: str
    sub_sequence_number: int


class Row(NamedTuple):
    id: RowId
    key: str
    data: bytes
    arrival_ms: int


@dataclass
class Checkpoint:
    """The offset log and the commit log: texts, each entry written at once or not at all."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def restored(self) -> tuple[int, str | None, str | None]:
        """The state from which a query resumes, like MicroBatchExecution.populateStartOffsets.

        The next batch's id, the offset that it begins at (None: the initial one), and the one that
        it ends at if it was planned before.
        """
        if not self.offsets:
            return 0, None, None
        latest = max(self.offsets)
        if latest in self.commits:
            return latest + 1, self.offsets[latest], None
        return latest, self.offsets.get(latest - 1), self.offsets[latest]


@dataclass
class Sink:
    """A table that takes each batch once, by its id; a batch is there as a whole or not at all."""

    batches: dict[int, list[list[Row]]] = field(default_factory=dict)
    """The rows of each task."""
    written_at: dict[int, float] = field(default_factory=dict)

    def write(self, batch: int, tasks: list[list[Row]], now: float) -> None:
        if batch not in self.batches:
            self.batches[batch] = tasks
            self.written_at[batch] = now
