"""CPU seconds of a Spark session's processes: the JVM by kind of thread, and its Python workers.

Linux only, from ``/proc``: see proc_pid_stat(5).
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from benchmarks.proc_stat import running

_THREADS = {"C1 Comp": "JIT", "C2 Comp": "JIT", "G1 ": "GC", "GC Thread": "GC", "Executor": "tasks"}
"""How the names of the JVM's threads begin, and what the threads do."""


def child_running(argument: str) -> int:
    """Return the id of this process's child that has ``argument`` on its command line."""
    [found] = [
        pid
        for pid, stat in running().items()
        if stat.parent == os.getpid()
        and argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    return found


def cpu_of_spark(jvm: int) -> dict[str, float]:
    """Return the CPU seconds so far of a JVM (JIT, GC, tasks, rest) and of its Python processes.

    The threads of ended tasks count as the rest.
    """
    stats = running()
    seconds: dict[str, float] = defaultdict(float)
    todo = [jvm]
    while todo:
        parent = todo.pop()
        seconds["Python"] += stats[parent].reaped
        for pid, stat in stats.items():
            if stat.parent == parent:
                seconds["Python"] += stat.own
                todo.append(pid)
    for stat in running(Path(f"/proc/{jvm}/task")).values():
        kind = next(
            (kind for start, kind in _THREADS.items() if stat.command.startswith(start)), None
        )
        if kind is not None:
            seconds[f"JVM, {kind}"] += stat.own
    seconds["JVM, rest"] = stats[jvm].own - sum(
        each for name, each in seconds.items() if name.startswith("JVM")
    )
    return seconds
