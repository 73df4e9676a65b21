"""The number of worker processes: a number, or that of the CPUs that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from sparkinesis.errors import OptionError

Processes: TypeAlias = int | Literal["auto"]


def process_count(processes: object) -> int:
    """Return the number of worker processes to run. Raises `OptionError`."""
    if processes == "auto":
        return usable_cpus()
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise OptionError(
            f"processes is {str(processes)[:100]!r}; it must be 'auto', for one process for each "
            "CPU that this program may use, or a whole number of at least 1. Leave it out to run "
            "the worker in this process."
        )
    return processes


def usable_cpus(root: Path = Path("/")) -> int:
    """Return the number of CPUs that this process may use, at least 1.

    By its scheduler affinity, and the CPU quotas of its control groups (versions 1 and 2), as
    containers have them; parts of a CPU do not count. ``root``: where /proc and /sys are.
    """
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = min(_quotas(root), default=float(own))
    return max(1, min(own, int(quota)))


def _quotas(root: Path) -> Iterable[float]:
    """Yield the CPUs that each control group around this process permits, if it has a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    mounts = root / "sys/fs/cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # A container sees its own group at the root, whatever the path says.
        inner = PurePosixPath(path.lstrip("/"))
        for group in {inner, *inner.parents}:
            if not controllers:
                yield from _quota_2(mounts / group / "cpu.max")
            elif "cpu" in controllers.split(","):
                for mount in ("cpu", "cpu,cpuacct"):
                    yield from _quota_1(mounts / mount / group)


def _quota_2(file: Path) -> Iterable[float]:
    quota, period = _numbers(file)
    if quota > 0 and period > 0:
        yield quota / period


def _quota_1(group: Path) -> Iterable[float]:
    quota, _ = _numbers(group / "cpu.cfs_quota_us")
    period, _ = _numbers(group / "cpu.cfs_period_us")
    if quota > 0 and period > 0:
        yield quota / period


def _numbers(file: Path) -> tuple[int, int]:
    """Return the first two numbers of a file; -1 for one that is not there, as for "max"."""
    try:
        words = [*file.read_text().split()[:2], "", ""]
    except OSError:
        return -1, -1
    first, second = (int(word) if word.isdigit() else -1 for word in words[:2])
    return first, second
