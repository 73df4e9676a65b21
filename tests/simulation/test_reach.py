"""No thread, lock, queue or clock of the package stays real in a simulated world unnoticed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import greenlet
import pytest

from sparkinesis.stream.timing import MACHINE
from tests.simulation import reach
from tests.simulation.primitives import REPLACED
from tests.simulation.query.histories import rough_history as rough_query
from tests.simulation.query.world import World as Queries
from tests.simulation.ranges.world import Ranges
from tests.simulation.rough import rough_history
from tests.simulation.subscribing import rough_subscribing
from tests.simulation.world import World


def test_the_simulation_reaches_every_thread_of_the_package() -> None:
    assert reach.out_of_reach() == []


def test_each_exception_is_still_needed() -> None:
    used = {(use.module, use.name) for use in reach.uses() if not use.is_replaced}
    assert reach.EXCEPTIONS.keys() <= used


def test_each_part_of_the_package_that_waits_is_replaced() -> None:
    replaced = {module.__name__.split(".")[1] for module, _ in REPLACED}
    assert {"stream", "lease", "worker", "fleet", "source"} <= replaced


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("from threading import Lock", "threading.Lock"),
        ("import threading as t", "threading as t"),
        ("def f():\n    import threading", "threading in a block"),
        ("try:\n    import threading\nexcept ImportError:\n    pass", "threading in a block"),
        ("import queue", "queue"),
        ("import concurrent.futures", "concurrent.futures"),
        ("from concurrent.futures import Future", "concurrent.futures.Future"),
        (
            "from concurrent.futures import ThreadPoolExecutor as Pool",
            "concurrent.futures.ThreadPoolExecutor as Pool",
        ),
        ("async def f():\n    import asyncio.tasks", "asyncio.tasks in a block"),
        ("import multiprocessing", "multiprocessing"),
        ("import selectors", "selectors"),
        ("import socketserver", "socketserver"),
        ("import _thread", "_thread"),
        ("import threading\nLOCK = threading.Lock()", "threading.Lock at import"),
        ("import threading\nclass Mine(threading.Thread): ...", "threading.Thread at import"),
        (
            "import threading\nclass A:\n    lock: object = field(default_factory=threading.Lock)",
            "threading.Lock at import",
        ),
        ("import threading\ndef f(lock=threading.Lock()): ...", "threading.Lock at import"),
    ],
)
def test_a_planted_thread_is_found(tmp_path: Path, source: str, use: str) -> None:
    (tmp_path / "planted.py").write_text(source)
    assert reach.out_of_reach(tmp_path) == [f"planted.py: {use}"]


def test_threads_that_are_replaced_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(
        "import threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(lock: threading.Lock) -> threading.Event:\n"
        "    return threading.Event()\n"
    )
    assert reach.out_of_reach(tmp_path) == []


_MACHINES: frozenset[object] = frozenset(
    {time.monotonic, time.perf_counter, time.sleep, time.time, time.time_ns, os.urandom}
)


def calls_of_the_machine(run: Callable[[], object]) -> set[str]:
    """The functions of the package that ask the machine for time or chance while ``run`` runs."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in _MACHINES:
            caller: FrameType | None = frame
            while caller is not None and caller.f_code.co_filename.endswith("random.py"):
                caller = caller.f_back
            path = "" if caller is None else caller.f_code.co_filename
            if caller is not None and path.startswith(str(reach.PACKAGE)):
                module = Path(path).relative_to(reach.PACKAGE).as_posix()
                if not module.startswith(reach.NEVER_SIMULATED):
                    name = caller.f_code.co_name
                    found.add(f"{module}: {name} calls {called.__name__}")

    def follow(event: str, _: object) -> None:
        """Profile functions are each greenlet's own."""
        sys.setprofile(note)

    greenlet.settrace(follow)
    sys.setprofile(note)
    try:
        run()
    finally:
        greenlet.settrace(None)
        sys.setprofile(None)
    return found


def test_a_planted_call_of_the_machine_is_found_in_any_task() -> None:
    found = calls_of_the_machine(lambda: greenlet.greenlet(MACHINE.wall_clock_ms).switch())
    assert found == {"stream/timing.py: <lambda> calls time_ns"}
    assert calls_of_the_machine(MACHINE.new_rng) != set()


@pytest.mark.parametrize(
    "run",
    [
        *(pytest.param(World(rough_history(n)).run, id=f"workers {n}") for n in (1, 4, 5)),
        pytest.param(World(rough_subscribing(0)).run, id="subscribers"),
        pytest.param(Queries(rough_query(0)).run, id="queries"),
        pytest.param(Ranges(0).run, id="ranges"),
    ],
)
def test_no_simulated_code_asks_the_machine_for_time_or_chance(
    run: Callable[[], object],
) -> None:
    assert calls_of_the_machine(run) == set()
