"""How loaded a worker is: measures the CPU utilization, and reports it to the leader.

The utilization is that of this container, or of the machine if there is no container. Each worker
of a machine reports the same figure, as each Java worker does: it shows how much more the place can
do, not which of its processes is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.worker_stats import CPU, INTERVAL, WorkerStats, with_sample

_CGROUP = Path("sys", "fs", "cgroup")
_V1_FOLDERS = ("cpu,cpuacct", "cpuacct", "cpu")
_IDLE = slice(3, 5)
"""Of the times in /proc/stat: idle, and idle while something waits for a disk."""
_TIMES = 8
"""The times in /proc/stat up to steal; those of guests are parts of the others."""


class CpuReading(msgspec.Struct, frozen=True):
    """The CPU time used until an instant. Of one source, used and at have the same unit."""

    source: str
    used: float
    at: float
    """The instant; in /proc/stat, the time of all CPUs until then."""
    cpus: float = 1.0
    """The number of CPUs that may be used at the same time, by quota and cpuset."""


def utilization(before: CpuReading, after: CpuReading) -> float | None:
    """Return the utilization between two readings in percent, from 0 to 100; None if unknown.

    A container may use more than its quota for a moment; that counts as 100. A counter that went
    back, or another source, shows nothing.
    """
    used, available = after.used - before.used, (after.at - before.at) * after.cpus
    if before.source != after.source or used < 0 or available <= 0:
        return None
    return min(100.0, used / available * 100.0)


class CpuMeter:
    """Measures the utilization from each call to the next. For one thread at a time.

    root: the folder that holds ``sys`` and ``proc``. clock: monotonic, in seconds.
    """

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._before = read_cpu(root, clock)

    @property
    def can_measure(self) -> bool:
        """False if the CPU time is unknown here, as outside of Linux."""
        return self._before is not None

    def measure(self) -> float | None:
        """Return the utilization since the last call in percent; None if it is unknown."""
        before, after = self._before, read_cpu(self._root, self._clock)
        self._before = after
        return None if before is None or after is None else utilization(before, after)


class LoadReporter:
    """Writes the row of this worker's load. For one thread.

    meter: measures the CPU utilization; None, or one that cannot: the load is the throughput of the
    worker's leases.
    """

    def __init__(self, worker_id: str, failover_time: float, meter: CpuMeter | None) -> None:
        self._worker_id = worker_id
        self._every = min(INTERVAL, 3 * failover_time)
        self._meter = meter if meter is not None and meter.can_measure else None
        self._samples: dict[str, tuple[float, ...]] = {}
        self.row: WorkerStats | None = None
        """The row as last written; None before that, and once it was to be deleted."""
        self._written_at: float | None = None

    def report(self, rows: Coordination, second: int, now: float) -> None:
        """Measure the load and write the row, if that is due; ``second``: the epoch's."""
        if self._written_at is not None and now - self._written_at < self._every:
            return
        if self._meter is not None:
            self._samples = with_sample(self._samples, CPU, self._meter.measure())
        limits = dict.fromkeys(self._samples, 100)
        row = WorkerStats(self._worker_id, second, self._samples, limits)
        rows.write_stats(row)
        self.row, self._written_at = row, now

    def withdraw(self, rows: Coordination | None) -> None:
        """Delete the row, if this worker has written one."""
        row, self.row = self.row, None
        if row is not None:
            assert rows is not None, "it has written the row"
            rows.delete_stats(row)


def read_cpu(root: Path, clock: Callable[[], float]) -> CpuReading | None:
    """Return the CPU time used by this container, or by the machine; None if it is unknown."""
    group = root / _CGROUP
    return _version_2(group, clock) or _version_1(group, clock) or _machine(root)


def _version_2(group: Path, clock: Callable[[], float]) -> CpuReading | None:
    try:
        lines = (group / "cpu.stat").read_text().splitlines()
        usage = dict(line.split() for line in lines)["usage_usec"]
        used, at = int(usage) / 1e6, clock()
        cpus = _cpus_in_set(group, "cpuset.cpus.effective", "cpuset.cpus")
        quota = _text(group / "cpu.max").split()
        if len(quota) == 2 and quota[0] != "max":
            cpus = min(cpus or float("inf"), int(quota[0]) / int(quota[1]))
    except (OSError, ValueError, KeyError, ZeroDivisionError):
        return None
    return CpuReading("cgroup v2", used, at, cpus) if cpus else None


def _version_1(group: Path, clock: Callable[[], float]) -> CpuReading | None:
    for name in _V1_FOLDERS:
        usage = _text(group / name / "cpuacct.usage")
        if not usage:
            continue
        try:
            used, at = int(usage) / 1e9, clock()
            cpus = _cpus_in_set(group / "cpuset", "cpuset.effective_cpus", "cpuset.cpus")
            quota = period = 0
            for folder in (group / name, group / "cpu"):
                if (folder / "cpu.cfs_quota_us").exists():
                    quota = int(_text(folder / "cpu.cfs_quota_us"))
                    period = int(_text(folder / "cpu.cfs_period_us"))
                    break
            if quota > 0:
                cpus = min(cpus or float("inf"), quota / period)
        except (OSError, ValueError, ZeroDivisionError):
            return None
        return CpuReading("cgroup v1", used, at, cpus) if cpus else None
    return None


def _machine(root: Path) -> CpuReading | None:
    line = _text(root / "proc" / "stat").partition("\n")[0].split()
    try:
        times = [int(each) for each in line[1 : _TIMES + 1]]
    except ValueError:
        return None
    if len(times) < _IDLE.stop or line[0] != "cpu":
        return None
    total = sum(times)
    return CpuReading("machine", total - sum(times[_IDLE]), total)


def _cpus_in_set(folder: Path, *names: str) -> float:
    """Return the number of CPUs in the first file that lists some, such as ``0-4,6``; or 0."""
    for name in names:
        if listed := _text(folder / name):
            ranges = [part.split("-") for part in listed.split(",")]
            return float(sum(int(each[-1]) - int(each[0]) + 1 for each in ranges))
    return 0.0


def _text(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
