"""One call for many threads that need its answer at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class SharedAnswer(Generic[_T]):
    """Makes a call, and gives its answer to every thread that asks while the answer is fresh.

    Threads that ask while the call is running wait for it, and share its answer or its error.

    call: makes the call. fresh_for: seconds. clock: monotonic, in seconds.
    """

    def __init__(
        self, call: Callable[[], _T], fresh_for: float, clock: Callable[[], float]
    ) -> None:
        self._call = call
        self._fresh_for = fresh_for
        self._clock = clock
        self._lock = threading.Lock()
        self._answered: tuple[float, _T] | None = None
        self._failed: tuple[float, Exception] | None = None

    def __call__(self) -> _T:
        """Return the answer. Raises the call's error in every thread that waited for the call."""
        return self.with_age()[0]

    def with_age(self) -> tuple[_T, float]:
        """Return the answer and its age in seconds. Raises the same errors."""
        began = self._clock()
        with self._lock:
            if self._failed is not None and began <= self._failed[0]:
                raise self._failed[1]
            if self._answered is None or self._clock() - self._answered[0] >= self._fresh_for:
                try:
                    answer = self._call()
                except Exception as error:
                    self._failed = self._clock(), error
                    raise
                self._answered = self._clock(), answer
            at, answer = self._answered
            return answer, self._clock() - at
