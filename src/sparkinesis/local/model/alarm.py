"""The waits of a response that is not complete: for an event, or for an instant. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class IdleUntil:
    """Nothing to send until `wake` is called or the clock reaches `until_ms`."""

    until_ms: int


class Alarm:
    """Wakes the sender of a response: by an event, or once an `IdleUntil` is over.

    wake: called, from any thread. Set by the sender.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] = _ignore
        self._at_ms: int | None = None

    def set(self, until_ms: int) -> IdleUntil:
        """Return an `IdleUntil`, after which `tick` wakes the sender."""
        self._at_ms = until_ms
        return IdleUntil(until_ms)

    def tick(self, now: int) -> None:
        """Wake the sender if the clock has reached the time of its `IdleUntil`."""
        if self._at_ms is not None and now >= self._at_ms:
            self.ring()

    def stop(self) -> None:
        """Do not wake the sender by `tick`."""
        self._at_ms = None

    def silence(self) -> None:
        """Wake the sender no more: it has gone."""
        self.wake = _ignore

    def ring(self) -> None:
        self.wake()


def _ignore() -> None:
    pass
