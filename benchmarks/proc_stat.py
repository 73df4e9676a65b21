"""Processes and threads as Linux tells of them in ``/proc``: see proc_pid_stat(5)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Stat:
    """A process or thread as one line of /proc/PID/stat tells of it."""

    command: str
    parent: int
    own: float
    """CPU seconds of the process or the thread."""
    started: int
    """Tells a process from a later one with the same id."""
    reaped: float = field(default=0.0, compare=False)
    """CPU seconds of the children that have ended and were waited for."""


def parsed(line: str) -> Stat:
    """Parse the line. The command may contain spaces and parentheses."""
    _, _, rest = line.partition("(")
    command, _, rest = rest.rpartition(")")
    fields = rest.split()
    user, system, reaped_user, reaped_system = (int(ticks) / TICKS for ticks in fields[11:15])
    return Stat(
        command, int(fields[1]), user + system, int(fields[19]), reaped_user + reaped_system
    )


def stat_of(pid: int) -> Stat:
    """Raises `OSError` if there is no such process."""
    return parsed((_PROC / str(pid) / "stat").read_text())


def cpu_of(pid: int) -> float:
    """The CPU seconds of one process."""
    return stat_of(pid).own


def told(file: str, name: str, pid: int | None = None) -> int:
    """Return a number of a file of /proc/PID, such as VmRSS of status (KiB).

    pid: by default, this process.
    """
    text = (_PROC / ("self" if pid is None else str(pid)) / file).read_text()
    return int(text.partition(f"\n{name}:")[2].split()[0])


def peak_memory() -> int:
    """The most bytes of this process that were resident: since its program began.

    getrusage(2) would count the process that started it, too.
    """
    return told("status", "VmHWM") * 1024


def clock_of(pid: int) -> float:
    """The CPU seconds of one process by its clock, which is finer than /proc/PID/stat.

    The number of the clock is that of clock_getcpuclockid(3). Raises `OSError` if there is no such
    process.
    """
    return time.clock_gettime(~pid << 3 | 2)


def running(folder: Path = _PROC) -> dict[int, Stat]:
    """All processes, or the threads of a process: ``folder`` is then its /proc/PID/task."""
    found = {}
    for entry in folder.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # has ended since
                found[int(entry.name)] = parsed((entry / "stat").read_text())
    return found


def tree(stats: Mapping[int, Stat], root: int) -> list[int]:
    """The process, if it runs, and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found = [root] if root in stats else []
    for pid in found:
        found += children.get(pid, [])
    return found
