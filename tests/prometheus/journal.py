"""What record processors counted themselves: a line for each call, which survives a kill -9."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of one worker, by its processors or by Prometheus."""

    records: float = 0
    bytes: float = 0
    calls: float = 0
    """Calls of process_records that returned."""
    failed: float = 0
    """Calls of process_records that raised."""


class Writer:
    """For any thread. A line is in the file, for whoever reads it, once `write` has returned."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, line: dict[str, object]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass
class Journal:
    """The lines of one worker so far."""

    path: Path
    numbers: set[int] = field(default_factory=set)
    """Those of the records that were processed."""
    furthest_behind: float = 0.0
    """Seconds between the arrival of a batch's last record and its fetch: the largest."""
    ended: float | None = None
    """When `Application.run` returned, in seconds since the epoch."""
    pids: set[int] = field(default_factory=set)
    totals: Totals = Totals()

    def read(self) -> Journal:
        """Read it again."""
        records, size, calls, failed = 0, 0, 0, 0
        for text in self.path.read_text().splitlines() if self.path.exists() else ():
            line = json.loads(text)
            if "numbers" in line:
                calls += 1
                records += len(line["numbers"])
                size += line["bytes"]
                self.numbers.update(line["numbers"])
                self.furthest_behind = max(self.furthest_behind, line["behind"])
            elif "failed" in line:
                failed += 1
            elif "pid" in line:
                self.pids.add(line["pid"])
            else:
                self.ended = line["ended"]
        self.totals = Totals(records, size, calls, failed)
        return self
