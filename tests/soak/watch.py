"""Watches a soak: the records put, the output, and the resources of each process."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.soak.accounting import processed_numbers
from tests.soak.footprint import Footprint, largest, processes
from tests.soak.growth import Sample
from tests.soak.outcome import BatchFolders, FileSink, ProcessedLines
from tests.soak.processor import KeyedNumber

KEPT_BY_SERVER = 430
"""Bytes that the local server takes to keep one user record, in JSON and in CBOR, for a day."""


class Process(NamedTuple):
    """The unit of sampling: a child, and the role of its processes.

    Only Spark's Python workers are several of one child and role. They come and go, and any of them
    may host a fleet's worker or read a shard: of those the largest counts.
    """

    child: str
    role: str
    session: int
    """Another one when the child was killed and started again."""

    def __str__(self) -> str:
        return f"{self.child}, {self.role}"


class Watch:
    """Looked through by one thread. ``folder``: the soak's."""

    def __init__(self, folder: Path) -> None:
        self.samples: dict[Process, list[Sample]] = {}
        self.numbers: set[KeyedNumber] = set()
        """The numbers that record processors have processed."""
        self.processed = ProcessedLines(folder / "processed")
        self.killed_query = FileSink(folder / "killed")
        self.steady_query = BatchFolders(folder / "steady")
        self._produced = folder / "produced.json"

    def produced(self) -> dict[str, int]:
        """The count of numbers stored so far, by key."""
        return json.loads(self._produced.read_text()) if self._produced.exists() else {}

    def has_come_out(self, rows: int, numbers: int) -> bool:
        """True if each query has written this many rows, and processors this many numbers."""
        queries = min(self.killed_query.rows, self.steady_query.rows)
        return queries >= rows and len(self.numbers) >= numbers

    def look(self, children: Mapping[int, str], seconds: float, *, calm: bool) -> None:
        """See what is new, and sample the sessions of ``children`` (names by process id)."""
        self.numbers.update(processed_numbers(self.processed.refresh()))
        self.killed_query.refresh()
        self.steady_query.refresh()
        kept = sum(self.produced().values()) * KEPT_BY_SERVER / 2**20
        prints: dict[Process, list[Footprint]] = defaultdict(list)
        for found in processes(set(children)):
            process = Process(children[found.session], found.role, found.session)
            prints[process].append(found.footprint)
        for process, each in prints.items():
            expected = kept if str(process) == "server, Python" else 0.0
            sample = Sample(seconds, largest(each), calm, expected, len(each))
            self.samples.setdefault(process, []).append(sample)
