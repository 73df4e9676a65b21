"""The number of worker processes, by the CPUs that a program may use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.worker.supervision.processes import process_count, usable_cpus


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "two", "2", None])
def test_other_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(OptionError, match=r"'auto'.* or a whole number of at least 1"):
        process_count(wrong)


def test_a_number_is_taken_as_it_is() -> None:
    assert process_count(1000) == 1000
    assert process_count("auto") == usable_cpus() >= 1


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 8),
        # The limit of a group above counts, too.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            3,
        ),
        # Version 1, as a container sees it: its own group lies at the root of the mount.
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/docker/1f\n3:memory:/docker/1f\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        # The group of another controller is not that of the CPU.
        (
            {
                "proc/self/cgroup": "4:cpuset:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_quotas_of_control_groups_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str], cpus: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cpus(tmp_path) == cpus
