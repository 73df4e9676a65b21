"""How tests share the processes of a run: longest first, and one Spark session for many files."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[1]
_SPARK_SESSION = "tests/spark, one session"
_LONGEST_FIRST = (
    "tests/spark/test_p2_no_gap_no_overlap.py",
    "tests/spark/test_fleet.py",
    "tests/spark/test_active_users.py",
    "tests/spark/test_batch_read.py",  # the first file of those that share a session
    "tests/integration/worker/test_fleet.py",
    "tests/spark/",
    "tests/simulation/test_bugs.py",
    "tests/integration/worker/test_many_subscriptions.py",
    "tests/integration/worker/test_memory.py",
    "tests/simulation/",
    "tests/integration/",
    "tests/hostile/",
    "tests/properties/",
    "",
)
_LEAST_PROCESSES, _MOST_PROCESSES = 2, 8
"""The latter for memory: each may run a Spark of its own."""


@functools.cache
def _scope(path: str) -> str:
    """Return what is run in one process and in one go: a file, or all that use one session."""
    if path.startswith("tests/spark/") and "spark: SparkSession" in (_ROOT / path).read_text():
        return _SPARK_SESSION
    return path


settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
# Hypothesis also draws constants that it finds in the source of all modules that are loaded, so
# that a test's examples would depend on the tests that the same process ran before.
providers._get_local_constants = lambda: providers._local_constants


def pytest_configure() -> None:
    """Heed Ctrl-C, as do all processes that tests start.

    A shell without job control starts what runs in the background with SIGINT ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first; the sort is stable."""

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(config.rootpath).as_posix()
        return next(n for n, prefix in enumerate(_LONGEST_FIRST) if path.startswith(prefix))

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return a process for each core: with more, Spark's JVMs slow down all that wait for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max(cores or 1, _LEAST_PROCESSES), _MOST_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Hand out a scope at a time."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - may be switched off

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid.partition("::")[0])

    return Scheduling(config, log)
