"""No thread, lock, queue or clock of the package stays real in a simulated world unnoticed."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import greenlet
import pytest

import sparkinesis
from sparkinesis.lease.table import batching as lease_batching
from sparkinesis.metrics import tally
from sparkinesis.stream.kpl import envelope
from sparkinesis.stream.timing import MACHINE
from sparkinesis.worker.processors import event_loop
from tests.simulation.led import rough_led
from tests.simulation.primitives import NEVER_REPLACED, installed
from tests.simulation.query.histories import rough_history as rough_query
from tests.simulation.query.world import World as Queries
from tests.simulation.queues.histories import rough_history as rough_queue
from tests.simulation.queues.world import World as Queues
from tests.simulation.rough import rough_history
from tests.simulation.scheduler import Scheduler
from tests.simulation.subscribing import rough_subscribing
from tests.simulation.ways import rough_ways
from tests.simulation.world import World

_PACKAGE = str(Path(sparkinesis.__file__).parent)
_MACHINES: frozenset[object] = frozenset(
    {time.monotonic, time.perf_counter, time.sleep, time.time, time.time_ns, os.urandom}
    | {_thread.allocate_lock, _thread.start_new_thread}
)
_MAKERS: dict[str, Any] = {
    "Condition": threading.Condition.__init__,
    "Event": threading.Event.__init__,
    "Future": concurrent.futures.Future.__init__,
    "Queue": queue.Queue.__init__,
    "RLock": threading.RLock,
    "Thread": threading.Thread.__init__,
    "ThreadPoolExecutor": concurrent.futures.ThreadPoolExecutor.__init__,
}
_MADE = {make.__code__: name for name, make in _MAKERS.items()}
"""What the simulation replaces, by the code that makes a real one."""


def calls_of_the_machine(run: Callable[[], object]) -> set[str]:
    """The functions of the package that ask the machine for time, chance or threads in a run."""
    found: set[str] = set()
    with installed(Scheduler(0)):
        pass  # the first time, it imports modules, which make locks

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in _MACHINES:
            name, caller = called.__name__, frame
            while caller.f_back is not None and caller.f_code.co_filename.endswith("random.py"):
                caller = caller.f_back
        elif event == "call" and frame.f_code in _MADE and frame.f_back is not None:
            name, caller = _MADE[frame.f_code], frame.f_back
        else:
            return
        path, _, module = caller.f_code.co_filename.partition(_PACKAGE + os.sep)
        if not path and not f"sparkinesis.{module}".replace("/", ".").startswith(NEVER_REPLACED):
            found.add(f"{module}: {caller.f_code.co_name} calls {name}")

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
    ("make", "name"),
    [
        ("threading.Lock()", "allocate_lock"),
        ("threading.RLock()", "RLock"),
        ("threading.Event()", "Event"),
        ("threading.Thread(target=print)", "Thread"),
        ("ThreadPoolExecutor(1)", "ThreadPoolExecutor"),
        ("Future()", "Future"),
    ],
)
def test_a_real_thread_or_lock_is_found(make: str, name: str) -> None:
    """As if a module of the package made it."""
    code = compile(make, lease_batching.__file__, "eval")
    names = {"threading": threading, **vars(concurrent.futures)}
    found = calls_of_the_machine(lambda: eval(code, names))
    assert found == {f"lease/table/batching.py: <module> calls {name}"}


def test_what_makes_threads_is_replaced_while_a_world_runs_and_only_then() -> None:
    places = [(tally, "threading"), (event_loop, "asyncio"), (envelope, "ThreadPoolExecutor")]
    real = [vars(module)[name] for module, name in places]
    with installed(Scheduler(0)):
        kept = [vars(module)[name] is was for (module, name), was in zip(places, real, strict=True)]
        assert kept == [False, False, True]
    assert [vars(module)[name] for module, name in places] == real
    assert real == [threading, asyncio, concurrent.futures.ThreadPoolExecutor]


@pytest.mark.parametrize(
    ("world", "rough", "number"),
    [
        *((World, rough_history, number) for number in (1, 4, 5)),
        (World, rough_subscribing, 0),
        (World, rough_led, 3),
        *((World, rough_ways, number) for number in (3, 7)),
        *((Queries, rough_query, number) for number in (0, 2)),
        *((Queues, rough_queue, number) for number in (0, 3)),
    ],
)
def test_no_simulated_code_asks_the_machine_for_anything(
    world: Callable[[Any], Any], rough: Callable[[int], Any], number: int
) -> None:
    assert calls_of_the_machine(world(rough(number)).run) == set()
