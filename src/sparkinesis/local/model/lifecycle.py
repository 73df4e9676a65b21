"""The states of a stream or a queue, by the clock: CREATING, ACTIVE, UPDATING, DELETING. No I/O."""

from __future__ import annotations

from collections.abc import Callable


class Lifecycle:
    """A resource whose creation, changes and deletion may take a while.

    status: CREATING, ACTIVE, UPDATING or DELETING.
    """

    def __init__(self) -> None:
        self.status = "ACTIVE"
        # The instant of the next change, and what it changes; of a DELETING resource, its end.
        self._pending: tuple[int, Callable[[int], None]] | None = None

    @property
    def is_serving(self) -> bool:
        """True unless the resource is CREATING or DELETING: it takes and gives records."""
        return self.status in {"ACTIVE", "UPDATING"}

    @property
    def due_ms(self) -> int | None:
        """The time at which a delayed change takes effect; None if no change is pending."""
        return self._pending[0] if self._pending is not None else None

    def is_gone(self, now: int) -> bool:
        return self.status == "DELETING" and self.due_ms is not None and now >= self.due_ms

    def announce(self) -> None:
        """Wake all that wait for this resource."""

    def settle(self, now: int) -> None:
        """Apply a delayed change that is due."""
        is_due = self.due_ms is not None and now >= self.due_ms
        if self._pending is not None and is_due and self.status != "DELETING":
            due, change = self._pending
            self._pending = None
            change(due)
            self.status = "ACTIVE"

    def create(self, now: int, delay_ms: int) -> None:
        """Become ACTIVE now, or after `delay_ms` in CREATING."""
        self._pass_through("CREATING", self.begin, now, delay_ms)

    def begin(self, now: int) -> None:
        """Become ACTIVE for the first time."""

    def change(self, change: Callable[[int], None], now: int, delay_ms: int) -> None:
        """Apply `change(instant)` now, or `delay_ms` later; the status is UPDATING until then."""
        self._pass_through("UPDATING", change, now, delay_ms)

    def delete(self, now: int, delay_ms: int) -> None:
        """Be gone now, or after `delay_ms` in DELETING."""
        self.status = "DELETING"
        self._pending = now + delay_ms, _change_nothing

    def _pass_through(
        self, status: str, change: Callable[[int], None], now: int, delay_ms: int
    ) -> None:
        if delay_ms <= 0:
            change(now)
            return
        self.status = status
        self._pending = (now + delay_ms, change)
        self.announce()


def _change_nothing(now: int) -> None:
    del now
