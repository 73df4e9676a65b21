"""A cursor by enhanced fan-out whose events a test waits for, in the test's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sparkinesis.stream.fan_out.cursor import FanOutCursor
from sparkinesis.stream.page import Fetched


class FetchingCursor(FanOutCursor):
    """wait: waits a number of seconds, or until the event is set."""

    def __init__(
        self,
        *args: Any,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._wait = wait

    def fetch(self) -> Fetched | None:
        """Wait for the next event and return it; None once the cursor is stopped."""
        stopped = self._current.stopped
        while not stopped.is_set():
            fetched = self.step()
            if fetched is not None:
                return fetched
            pause = round(self._recovery.resume_at - self._retry.clock(), 6)
            if pause > 0:
                self._wait(stopped, pause)
        return None
