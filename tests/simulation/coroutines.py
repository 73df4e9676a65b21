"""`asyncio`, as far as the package's event loop uses it: each coroutine is a task of a scheduler.

A coroutine that awaits `Pauses` lets time pass there, and is cancelled there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tests.simulation.scheduler import Process, Scheduler


@dataclass(frozen=True, slots=True)
class Pauses:
    """Awaits steps: each yields the seconds until the next one; the last one returns the result."""

    steps: Generator[float, None, Any]

    def __await__(self) -> Generator[float, None, Any]:
        return self.steps


@dataclass(frozen=True, slots=True)
class _Loop:
    scheduler: Scheduler
    process: Process

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, call: Callable[[], object]) -> None:
        self.scheduler.spawn(self.process, "call of the event loop", call)


def loop_of_process(scheduler: Scheduler) -> _Loop:
    """Returns the event loop of the process of the present task, which needs no thread."""
    assert scheduler.current is not None
    return _Loop(scheduler, scheduler.current.process)


@dataclass(frozen=True, slots=True)
class Asyncio:
    """Replaces the module `asyncio`."""

    scheduler: Scheduler
    new_event: Callable[[Scheduler], Any]
    new_future: Callable[[Scheduler], Future[Any]]
    CancelledError = asyncio.CancelledError

    def run_coroutine_threadsafe(
        self, coroutine: Coroutine[Any, Any, object], loop: _Loop
    ) -> Future[Any]:
        future, is_cancelled = self.new_future(self.scheduler), self.new_event(self.scheduler)
        future.add_done_callback(lambda _: is_cancelled.set())
        self.scheduler.spawn(
            loop.process, "coroutine", lambda: self._drive(coroutine, future, is_cancelled)
        )
        return future

    def _drive(
        self, coroutine: Coroutine[Any, Any, object], future: Future[Any], is_cancelled: Any
    ) -> None:
        seconds = 0.0
        try:
            while True:
                if is_cancelled.wait(seconds):
                    seconds = coroutine.throw(asyncio.CancelledError())
                else:
                    seconds = coroutine.send(None)
        except StopIteration as end:
            if future.set_running_or_notify_cancel():
                future.set_result(end.value)
        except asyncio.CancelledError:
            future.cancel()
        finally:
            coroutine.close()
