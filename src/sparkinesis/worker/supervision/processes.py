"""Runs an application's workers in processes: everything that is checked before any starts."""

from __future__ import annotations

import logging
import os
import pickle
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from sparkinesis.errors import OptionError
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.supervision.process_launcher import (
    ProcessLauncher,
    check_main_module,
    exit_if_imported,
)
from sparkinesis.worker.supervision.roster import ProcessRules
from sparkinesis.worker.supervision.supervised import Destination, Supervised, check_picklable
from sparkinesis.worker.supervision.supervisor import Supervisor
from sparkinesis.worker.supervision.worker_process import KILL_AFTER, REPORT_EVERY

_log = logging.getLogger(__name__)

Processes: TypeAlias = int | Literal["auto"]
"""A number of worker processes, or that of the CPUs that this process may use."""

_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 60.0
"""Seconds until a process is started again: after a first failure, and at most."""

_TO = Destination("worker processes", "in the worker's process", imports=True)


def run_in_processes(
    supervised: Supervised[Any],
    processes: object,
    set_up_log: Callable[[], None] | None = None,
) -> None:
    """Run workers, each in a process of its own, until all have ended.

    set_up_log: is called in each process first; can be pickled. None: a process logs to stderr,
    unless the program's main module sets up logging.

    Raises `OptionError`, `ProcessorError` and the errors of `Supervised.check` before any process
    is started; and the error that ended the workers, if one did.
    """
    exit_if_imported()
    count = process_count(processes)
    check_picklable(supervised, pickle.dumps, _TO)
    pickled = pickle.dumps(supervised)
    check_main_module(pickled, supervised.defined)
    launcher = ProcessLauncher(supervised, pickled, set_up_log)
    rules = ProcessRules(
        heartbeat_interval=REPORT_EVERY,
        lost_after=KILL_AFTER,
        first_backoff=_FIRST_BACKOFF,
        longest_backoff=_LONGEST_BACKOFF,
        phase=random.random(),  # noqa: S311 - no secret
    )
    # Takes the port first, before anything is called.
    supervisor = Supervisor(
        supervised,
        launcher,
        count,
        rules,
        title=f"Application {supervised.name}",
        clock=time.monotonic,
    )
    try:
        supervised.check()
    except BaseException:
        supervisor.close()
        raise
    _log.info("Application %s runs %d worker processes", supervised.name, count)
    with graceful_on_signals(partial(_shut_down, supervisor, supervised.shutdown_within)):
        supervisor.run()
    error = supervisor.status.error
    if error is not None:
        raise launcher.error_of(error)


def _shut_down(supervisor: Supervisor, within: float, timeout: float | None) -> None:
    seconds = within if timeout is None else timeout
    supervisor.post(f"shut down within {seconds:g} s", lambda state, _: state.shut_down(seconds))


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
