"""Calls that may take long or block for ever, in threads of their own; and problems that last."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import TroubleBegan, TroubleEnded
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace

_T = TypeVar("_T")


class Background(Generic[_T]):
    """Runs calls, some at the same time, whose results are collected later.

    The threads are daemons: a call that never returns keeps no process alive.
    """

    def __init__(self, name: str, at_once: int, place: LogPlace) -> None:
        self._name = name
        self._at_once = at_once
        self._place = place
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Hashable, Callable[[], _T]]] = deque()
        self._busy: set[Hashable] = set()
        """The keys of the calls that wait or run."""
        self._threads = 0
        self._done: list[tuple[Hashable, _T | Exception]] = []

    def start(self, key: Hashable, call: Callable[[], _T]) -> None:
        """Run a call soon, unless one of the same key waits or runs."""
        with self._changed:
            if key in self._busy:
                return
            self._busy.add(key)
            self._waiting.append((key, call))
            if self._threads == self._at_once:
                return
            self._threads += 1
        threading.Thread(
            target=self._place.run, args=(self._run,), name=self._name, daemon=True
        ).start()

    def is_busy(self, key: Hashable) -> bool:
        """Return True if the call of this key waits, runs, or is not collected yet."""
        return key in self._busy

    @property
    def is_idle(self) -> bool:
        """True if no call waits, runs, or is not collected yet."""
        return not self._busy

    def collect(self, timeout: float = 0.0) -> list[tuple[Hashable, _T | Exception]]:
        """Return the results since the last time, by key, each the value or the error of its call.

        Waits at most ``timeout`` seconds for the first.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._done), timeout)
            done, self._done = self._done, []
            self._busy -= {key for key, _ in done}
            return done

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    return
                key, call = self._waiting.popleft()
            result: _T | Exception
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - for the thread that collects
                result = error
            with self._changed:
                self._done.append((key, result))
                self._changed.notify_all()


class LastingProblem:
    """A problem of calls that are repeated: it is reported once, and again when it changes.

    For one thread. what: what fails. until: what happens meanwhile; both are reported.
    """

    def __init__(self, settings: WorkerSettings, what: str, until: str) -> None:
        self._failures = settings.failures
        self._publish = settings.publish
        self._what = what
        self._until = until
        self._reported: str | None = None

    def note(self, error: BaseException) -> None:
        """Report and count an error, unless it is the last one again."""
        text = describe(error)
        if text == self._reported:
            return
        self._reported = text
        self._failures.note(None, self._what, error)
        # The traceback of an error of our own would say nothing more.
        trace = None if isinstance(error, SparkinesisError) else error
        self._publish(TroubleBegan(self._what, self._until, text), trace)

    def end(self) -> None:
        """Note a success, and report that the problem is over."""
        if self._reported is not None:
            self._reported = None
            self._publish(TroubleEnded(self._what))
