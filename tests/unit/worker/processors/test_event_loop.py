"""The event loop that all workers of a process share."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from sparkinesis.worker.processors.event_loop import EventLoop
from tests.journal import PATIENCE


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_workers_of_a_process_share_the_loop() -> None:
    loops = {EventLoop().run(_loop()) for _ in range(2)}
    assert len(loops) == 1


def test_a_coroutine_that_is_cancelled_before_it_begins_is_closed() -> None:
    """Python would warn that nothing has awaited it."""
    loop, gate = EventLoop(), threading.Event()
    running = loop.run(_loop())
    assert isinstance(running, asyncio.AbstractEventLoop)
    running.call_soon_threadsafe(gate.wait)
    coroutine = _loop()
    ended: list[BaseException | None] = []
    loop.begin(coroutine, ended.append)()
    gate.set()
    assert isinstance(ended[0], CancelledError)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert loop.run(_loop()) is running


def test_a_worker_whose_coroutines_are_cancelled_disturbs_no_other() -> None:
    one, other = EventLoop(), EventLoop()
    begun, may_end = asyncio.Event(), asyncio.Event()
    ended: list[BaseException | None] = []

    async def work() -> None:
        begun.set()
        await may_end.wait()

    one.begin(work(), ended.append)
    one.run(begun.wait())
    other.cancel()
    assert ended == []
    one.cancel()
    assert isinstance(ended[0], CancelledError)
    assert other.run(_loop()) is one.run(_loop())


@pytest.mark.parametrize("end", [sys.exit, lambda: asyncio.get_running_loop().stop()])
def test_the_loop_outlives_a_task_that_would_end_it(end: object) -> None:
    async def quit_() -> None:
        end()  # type: ignore[operator]

    async def work() -> asyncio.AbstractEventLoop:
        await asyncio.wait([asyncio.ensure_future(quit_())])
        return asyncio.get_running_loop()

    assert EventLoop().run(work()) is EventLoop().run(_loop())


_PROGRAM = """
import asyncio, os
from sparkinesis.worker.processors.event_loop import EventLoop

async def begin(kept=[]):
    kept.append(asyncio.create_task(asyncio.sleep(3600)))
    return "begun"

print(EventLoop().run(begin()), flush=True)
if os.fork() == 0:
    print(EventLoop().run(begin()), flush=True)
else:
    assert os.wait()[1] == 0
"""


def test_a_child_process_has_its_own_and_no_task_keeps_a_process_from_exiting() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["begun"] * 2, "")
