"""CPU seconds of a Spark session's processes: the JVM by kind of thread, and its Python workers.

Linux only, from ``/proc``: see proc_pid_stat(5).
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")
_THREADS = {"C1 Comp": "JIT", "C2 Comp": "JIT", "G1 ": "GC", "GC Thread": "GC", "Executor": "tasks"}
"""How the names of the JVM's threads begin, and what the threads do."""


class _Stat(NamedTuple):
    name: str
    parent: int
    own: float
    """CPU seconds of the process or the thread."""
    reaped: float
    """CPU seconds of the children that have ended and were waited for."""


def _stat(file: Path) -> _Stat:
    start, _, rest = file.read_text().rpartition(")")
    fields = rest.split()
    user, system, reaped_user, reaped_system = (int(ticks) / _TICK for ticks in fields[11:15])
    name = start.partition("(")[2]
    return _Stat(name, int(fields[1]), user + system, reaped_user + reaped_system)


def _stats(folder: Path) -> dict[int, _Stat]:
    found = {}
    for entry in folder.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended
                found[int(entry.name)] = _stat(entry / "stat")
    return found


def child_running(argument: str) -> int:
    """Return the id of this process's child that has ``argument`` on its command line."""
    [found] = [
        pid
        for pid, stat in _stats(Path("/proc")).items()
        if stat.parent == os.getpid()
        and argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    return found


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of one process so far."""
    return _stat(Path(f"/proc/{pid}/stat")).own


def cpu_of_spark(jvm: int) -> dict[str, float]:
    """Return the CPU seconds so far of a JVM (JIT, GC, tasks, rest) and of its Python processes.

    The threads of ended tasks count as the rest.
    """
    stats = _stats(Path("/proc"))
    seconds: dict[str, float] = defaultdict(float)
    todo = [jvm]
    while todo:
        parent = todo.pop()
        seconds["Python"] += stats[parent].reaped
        for pid, stat in stats.items():
            if stat.parent == parent:
                seconds["Python"] += stat.own
                todo.append(pid)
    for stat in _stats(Path(f"/proc/{jvm}/task")).values():
        kind = next((kind for start, kind in _THREADS.items() if stat.name.startswith(start)), None)
        if kind is not None:
            seconds[f"JVM, {kind}"] += stat.own
    seconds["JVM, rest"] = stats[jvm].own - sum(
        each for name, each in seconds.items() if name.startswith("JVM")
    )
    return seconds
