"""A worker within a program that has an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Protocol


class Runs(Protocol):
    """A worker that is not started yet."""

    def start(self) -> object: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def request_shutdown(self, timeout: float | None = None) -> None: ...


async def run_worker(make: Callable[[asyncio.AbstractEventLoop], Runs]) -> None:
    """Run a worker until it ends; shut it down if the task is cancelled, at once the second time.

    Raises the errors of ``make`` and `Worker.start`, and the error that ended the worker.
    """
    loop = asyncio.get_running_loop()
    worker = await asyncio.to_thread(make, loop)
    is_cancelled = False
    running = _in_own_thread(worker)
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            worker.request_shutdown(0.0 if is_cancelled else None)
            is_cancelled = True
    running.result()
    if is_cancelled:
        raise asyncio.CancelledError


def _in_own_thread(worker: Runs) -> asyncio.Future[None]:
    """Start a worker in a thread of its own, and return its end, as a future.

    Not as a task: Ctrl-C may cancel all tasks, and the program would not wait for the worker.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        error: BaseException | None = None
        try:
            worker.start()
            while not worker.wait(1.0):
                pass
        except BaseException as raised:  # noqa: BLE001 - the task raises it
            error = raised
        with contextlib.suppress(RuntimeError):  # the program has closed its loop
            loop.call_soon_threadsafe(_settle, ended, error)

    threading.Thread(target=run, name="run_async", daemon=True).start()
    return ended


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
