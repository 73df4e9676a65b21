"""The settings of an account in one region."""

from __future__ import annotations

import dataclasses

_MINIMUM_MS = 24 * 3_600_000


@dataclasses.dataclass
class Commitment:
    """The minimum throughput billing commitment, which unlocks warm throughput.

    A commitment lasts for at least 24 hours: disabled sooner, it ends by itself after them, unless
    it is enabled again before.

    started_ms: None before the first commitment. ended_ms: the end, which may lie in the future;
    None for an enabled commitment.
    """

    started_ms: int | None = None
    ended_ms: int | None = None

    @property
    def earliest_end_ms(self) -> int | None:
        return None if self.started_ms is None else self.started_ms + _MINIMUM_MS

    def status(self, now: int) -> str:
        if self.started_ms is None:
            return "DISABLED"
        if self.ended_ms is None:
            return "ENABLED"
        return "DISABLED" if now >= self.ended_ms else "ENABLED_UNTIL_EARLIEST_ALLOWED_END"

    def holds(self, now: int) -> bool:
        return self.status(now) != "DISABLED"

    def enable(self, now: int) -> None:
        if not self.holds(now):
            self.started_ms = now
        self.ended_ms = None

    def disable(self, now: int) -> None:
        earliest = self.earliest_end_ms
        if earliest is not None and self.ended_ms is None:
            self.ended_ms = max(now, earliest)
