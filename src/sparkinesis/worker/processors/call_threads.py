"""Threads for calls that run at the same time, as many as there are calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context

_KEEP = 10.0
"""Seconds after which a thread without a call ends."""


class CallThreads:
    """Runs each call at once, in a thread that has none, or else in a new one. For any thread.

    The caller bounds their number. A call must handle its errors. Unlike those of
    `concurrent.futures`, a call that hangs does not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._calls: deque[tuple[Context, Callable[[], None]]] = deque()
        self._idle = 0

    def run(self, call: Callable[[], None]) -> None:
        """Begin a call, in a copy of the present context. Raises RuntimeError if no thread can."""
        with self._changed:
            self._calls.append((copy_context(), call))
            if self._idle >= len(self._calls):
                self._changed.notify()
                return
            try:
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            except RuntimeError:
                self._calls.pop()
                raise

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                has_call = self._changed.wait_for(lambda: self._calls, _KEEP)
                self._idle -= 1
                if not has_call:
                    return
                context, call = self._calls.popleft()
            context.run(call)
