"""The CPU utilization by files as the kernel writes them; those of version 1 and /proc/stat were
recorded on the machine where this was written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkinesis.lease.assignment.load_report import CpuMeter, read_cpu
from tests.clocks import MovedClock

CGROUP = "sys/fs/cgroup"
STAT = """\
cpu  194818 55987 31472 86071 5225 0 1011 932 0 0
cpu0 91989 21499 13810 57445 2047 0 420 455 0 0
"""


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def version_2(usec: int) -> str:
    return f"usage_usec {usec}\nuser_usec 1\nsystem_usec 2\nnr_periods 0\nnr_throttled 0\n"


def measured(
    root: Path, clock: MovedClock, change: Callable[[], object], seconds: float = 10.0
) -> float | None:
    """The utilization over some seconds in which the files change."""
    meter = CpuMeter(root, clock)
    change()
    clock.now += seconds
    return meter.measure()


@pytest.mark.parametrize(
    ("most", "cpuset", "percent"),
    [
        ("max 100000\n", "0-3\n", 12.5),
        ("max 100000\n", "0-2,5,7-8\n", 100 / 12),
        ("200000 100000\n", "0-3\n", 25.0),
        ("50000 100000\n", "0-3\n", 100.0),
        ("50000 200000\n", "0-3\n", 100.0),
        ("800000 100000\n", "0-3\n", 12.5),
        (None, "0-3\n", 12.5),
    ],
    ids=[
        "no quota",
        "a set with holes",
        "two",
        "half",
        "beyond",
        "above the set",
        "the root group",
    ],
)
def test_a_container_of_version_2(
    tmp_path: Path, clock: MovedClock, most: str | None, cpuset: str, percent: float
) -> None:
    """5 seconds of CPU in 10 seconds."""
    files = {"cpu.stat": version_2(7_000_000), "cpuset.cpus.effective": cpuset}
    if most is not None:
        files["cpu.max"] = most
    put(tmp_path, {f"{CGROUP}/{name}": text for name, text in files.items()})
    later = {f"{CGROUP}/cpu.stat": version_2(12_000_000)}
    assert measured(tmp_path, clock, lambda: put(tmp_path, later)) == pytest.approx(percent)


@pytest.mark.parametrize("folder", ["cpu", "cpuacct", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "percent"), [("-1", 25.0), ("150000", 100 / 3)])
def test_a_container_of_version_1(
    tmp_path: Path, clock: MovedClock, folder: str, quota: str, percent: float
) -> None:
    limits = "cpu" if folder == "cpuacct" else folder
    put(
        tmp_path,
        {
            f"{CGROUP}/{folder}/cpuacct.usage": "1795008000000\n",
            f"{CGROUP}/{limits}/cpu.cfs_quota_us": f"{quota}\n",
            f"{CGROUP}/{limits}/cpu.cfs_period_us": "100000\n",
            f"{CGROUP}/cpuset/cpuset.effective_cpus": "0-1\n",
            "proc/stat": STAT,
        },
    )
    later = {f"{CGROUP}/{folder}/cpuacct.usage": "1800008000000\n"}
    assert measured(tmp_path, clock, lambda: put(tmp_path, later)) == pytest.approx(percent)


def test_a_machine_without_containers(tmp_path: Path, clock: MovedClock) -> None:
    """Of 1,000 new ticks, 700 are idle and 50 are of idle CPUs that wait for a disk."""
    put(tmp_path, {"proc/stat": STAT})
    later = "cpu  194918 55987 31572 86771 5275 0 1036 957 0 0\n"
    found = measured(tmp_path, clock, lambda: put(tmp_path, {"proc/stat": later}))
    assert found == pytest.approx(25.0)


def test_each_measurement_begins_at_the_last_one(tmp_path: Path, clock: MovedClock) -> None:
    put(
        tmp_path,
        {f"{CGROUP}/cpu.stat": version_2(0), f"{CGROUP}/cpuset.cpus.effective": "0"},
    )
    meter, found = CpuMeter(tmp_path, clock), []
    for usec in (500_000, 600_000, 600_000):
        put(tmp_path, {f"{CGROUP}/cpu.stat": version_2(usec)})
        clock.now += 1
        found.append(meter.measure())
    assert found == [pytest.approx(50), pytest.approx(10), 0]


def test_a_quota_that_changes_counts_at_once(tmp_path: Path, clock: MovedClock) -> None:
    put(
        tmp_path,
        {
            f"{CGROUP}/cpu.stat": version_2(0),
            f"{CGROUP}/cpu.max": "100000 100000",
            f"{CGROUP}/cpuset.cpus.effective": "0-7",
        },
    )
    later = {f"{CGROUP}/cpu.stat": version_2(8_000_000), f"{CGROUP}/cpu.max": "400000 100000"}
    assert measured(tmp_path, clock, lambda: put(tmp_path, later)) == pytest.approx(20.0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {f"{CGROUP}/cpu.stat": "user_usec 1\n"},
        {f"{CGROUP}/cpu.stat": "usage_usec ?\n"},
        {f"{CGROUP}/cpu.stat": version_2(1), f"{CGROUP}/cpu.max": "max 100000"},
        {f"{CGROUP}/cpuacct/cpuacct.usage": "?"},
        {f"{CGROUP}/cpuacct/cpuacct.usage": "1"},
        {"proc/stat": "intr 1 2 3 4 5 6 7 8\n"},
        {"proc/stat": "cpu 1 2 ?\n"},
        {"proc/stat": "cpu 1 2 3\n"},
        {"proc/stat": ""},
    ],
    ids=str,
)
def test_what_cannot_be_read_is_not_measured(
    tmp_path: Path, clock: MovedClock, files: dict[str, str]
) -> None:
    put(tmp_path, files)
    meter = CpuMeter(tmp_path, clock)
    clock.now += 1
    assert not meter.can_measure
    assert meter.measure() is None


def test_a_broken_container_leaves_the_machine(tmp_path: Path, clock: MovedClock) -> None:
    put(tmp_path, {f"{CGROUP}/cpu.stat": "nothing", "proc/stat": STAT})
    reading = read_cpu(tmp_path, clock)
    assert reading is not None
    assert reading.source == "machine"


def test_nothing_is_told_by_two_sources_or_a_counter_that_went_back(
    tmp_path: Path, clock: MovedClock
) -> None:
    put(
        tmp_path,
        {
            f"{CGROUP}/cpu.stat": version_2(9),
            f"{CGROUP}/cpuset.cpus.effective": "0",
            "proc/stat": STAT,
        },
    )
    back = {f"{CGROUP}/cpu.stat": version_2(8)}
    assert measured(tmp_path, clock, lambda: put(tmp_path, back)) is None
    assert measured(tmp_path, clock, (tmp_path / CGROUP / "cpu.stat").unlink) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's files")
def test_this_machine_is_measured() -> None:
    meter = CpuMeter()
    used = sum(range(3_000_000))
    found = meter.measure()
    assert used
    assert found is not None
    assert 0 < found <= 100
