"""The CPU seconds of a tree of processes, JVMs and the others apart, from Linux' /proc."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.proc_stat import Stat, running, tree

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
        stats = running()
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
