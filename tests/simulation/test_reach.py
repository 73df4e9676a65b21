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
from tests.simulation.led import rough_led
from tests.simulation.query.histories import rough_history as rough_query
from tests.simulation.query.world import World as Queries
from tests.simulation.queues.histories import rough_history as rough_queue
from tests.simulation.queues.world import World as Queues
from tests.simulation.ranges.world import Ranges
from tests.simulation.rough import rough_history
from tests.simulation.subscribing import rough_subscribing
from tests.simulation.world import World


def test_the_simulation_reaches_every_thread_of_the_package() -> None:
    assert reach.out_of_reach() == []


def test_each_exception_is_still_needed() -> None:
    used = {(use.module, use.name) for use in reach.uses() if not use.is_replaced}
    assert reach.EXCEPTIONS.keys() <= used


_PLANTED = """
import queue, selectors
import concurrent.futures
import threading
import threading as t
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Pool
from threading import Lock

try:
    import multiprocessing
except ImportError:
    pass

LOCK = threading.Lock()

class Mine(threading.Thread):
    lock: object = field(default_factory=threading.RLock)

def f(lock=threading.Condition()) -> threading.Event:
    import threading
    return threading.Event()

async def g():
    import asyncio.tasks
"""


def test_planted_threads_are_found(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(_PLANTED)
    assert sorted(reach.out_of_reach(tmp_path)) == [
        "planted.py: asyncio.tasks in a block",
        "planted.py: concurrent.futures",
        "planted.py: concurrent.futures.ThreadPoolExecutor as Pool",
        "planted.py: multiprocessing in a block",
        "planted.py: selectors",
        "planted.py: threading as t",
        "planted.py: threading in a block",
        "planted.py: threading.Condition at import",
        "planted.py: threading.Lock",
        "planted.py: threading.Lock at import",
        "planted.py: threading.RLock at import",
        "planted.py: threading.Thread at import",
    ]


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
        *(pytest.param(World(rough_led(n)).run, id=f"led workers {n}") for n in (0, 3, 5)),
        pytest.param(Queries(rough_query(0)).run, id="queries"),
        pytest.param(Ranges(0).run, id="ranges"),
        *(pytest.param(Queues(rough_queue(n)).run, id=f"queues {n}") for n in (0, 2, 3)),
    ],
)
def test_no_simulated_code_asks_the_machine_for_time_or_chance(run: Callable[[], object]) -> None:
    assert calls_of_the_machine(run) == set()
