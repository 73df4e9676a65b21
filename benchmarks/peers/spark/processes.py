"""The CPU seconds of a tree of processes, JVMs and the others apart, from Linux' /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
JVM = "java"


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
    ended: float
    """CPU seconds of its children that have ended and were waited for."""


def parsed(line: str) -> Stat:
    """Parse the line. The command may contain spaces and parentheses."""
    _, _, rest = line.partition("(")
    command, _, rest = rest.rpartition(")")
    fields = rest.split()
    user, system, ended_user, ended_system = (int(each) / TICKS for each in fields[11:15])
    return Stat(command, int(fields[1]), user + system, ended_user + ended_system)


def summed(stats: Mapping[int, Stat], root: int) -> Cpu:
    """Sum what a process and its descendants took; children that ended count as Python."""
    jvm = python = 0.0
    for pid in _tree(stats, root):
        stat = stats[pid]
        python += stat.ended
        if stat.command == JVM:
            jvm += stat.own
        else:
            python += stat.own
    return Cpu(jvm, python)


def _tree(stats: Mapping[int, Stat], root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found = [root] if root in stats else []
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu(root: int) -> Cpu:
    """What a process and its descendants have taken until now."""
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stats[int(folder.name)] = parsed((folder / "stat").read_text())
            except OSError:  # has ended since
                continue
    return summed(stats, root)
