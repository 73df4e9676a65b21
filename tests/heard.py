"""The events that a worker tells, in the form in which tests wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sparkinesis.events import Event
from tests.journal import PATIENCE


class Heard:
    """An ``on_event`` that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that an event makes true."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), self.events

    def wait_for(self, kind: type, number: int = 1) -> list[Any]:
        """Wait for so many events of a kind; return them, and those of the kind that came then."""
        self.wait(lambda: len(self.of(kind)) >= number)
        return self.of(kind)

    def of(self, kind: type) -> list[Any]:
        return [event for event in list(self.events) if isinstance(event, kind)]
