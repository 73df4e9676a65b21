"""The CPU seconds of a tree of processes, JVMs and the others apart, from Linux' /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
JVM = "java"
PAUSE = 0.5
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Cpu:
    """CPU seconds."""

    jvm: float = 0.0
    python: float = 0.0

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.jvm - other.jvm, self.python - other.python)

    @property
    def all(self) -> float:
        return self.jvm + self.python


@dataclass(frozen=True)
class Stat:
    """A process as one line of /proc/PID/stat tells of it."""

    command: str
    parent: int
    own: float
    """CPU seconds of the process."""
    started: int
    """Tells a process from a later one with the same id."""


def parsed(line: str) -> Stat:
    """Parse the line. The command may contain spaces and parentheses."""
    _, _, rest = line.partition("(")
    command, _, rest = rest.rpartition(")")
    fields = rest.split()
    return Stat(
        command, int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS, int(fields[19])
    )


class Meter:
    """Adds up the CPU seconds of a process and its descendants, those too that have ended since.

    PySpark's daemon ignores the end of its workers, so that Linux forgets what they took. The meter
    looks often enough to lose little of it.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[tuple[int, int], Stat] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def now(self) -> Cpu:
        """What they have taken until now."""
        stats = running_processes()
        with self._lock:
            return self.add(stats)

    def add(self, stats: Mapping[int, Stat]) -> Cpu:
        """Take note of the processes that run; return the sum of all that were seen."""
        for pid in tree(stats, self._root):
            self._seen[pid, stats[pid].started] = stats[pid]
        jvm = sum(stat.own for stat in self._seen.values() if stat.command == JVM)
        return Cpu(jvm, sum(stat.own for stat in self._seen.values()) - jvm)

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE):
            self.now()


def running_processes() -> dict[int, Stat]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = parsed((folder / "stat").read_text())
            except OSError:  # has ended since
                continue
    return found


def cpu_of(pid: int) -> float:
    """The CPU seconds of one process."""
    return parsed(Path(f"/proc/{pid}/stat").read_text()).own


def tree(stats: Mapping[int, Stat], root: int) -> list[int]:
    """The process, if it runs, and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found = [root] if root in stats else []
    for pid in found:
        found += children.get(pid, [])
    return found
