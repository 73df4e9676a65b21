"""How far a reader has come in a shard, and whether records expired while the reader paused."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from sparkinesis.stream.calls.client import Fetched
from sparkinesis.stream.position import AfterRecord, Position, advanced
from sparkinesis.stream.reading.retention import (
    CLOCK_MARGIN_MS,
    ITERATOR_LIFE_MS,
    SHORTEST_RETENTION_MS,
    may_have_lost,
)


class ReadProgress(msgspec.Struct, frozen=True):
    """A reader's position in a shard, and the time at which the reader was there.

    A reader may pause for days between two pages, because a processor hangs or the machine is
    suspended. Records after the first page may expire in that time; the second page then starts
    with the oldest record kept.
    """

    position: Position
    seen_ms: int | None = None
    """The service's clock (epoch ms) at the last page; None until a page had a record or was at the
    tip."""

    def after(self, fetched: Fetched) -> ReadProgress:
        """Return the progress after a page."""
        page, now_ms = fetched.page, fetched.service_time_ms
        at_tip = page.millis_behind_latest == 0
        if not page.records and not at_tip:
            return self if self.seen_ms is None else replace(self, seen_ms=now_ms)
        position, clear_until = self.position, now_ms if at_tip else None
        if page.records:
            last = page.records[-1]
            position = AfterRecord(last.sequence_number, arrived_ms=last.arrived_ms)
            if not at_tip:
                clear_until = last.arrived_ms
        if clear_until is not None:
            position = advanced(position, clear_until - CLOCK_MARGIN_MS)
        return ReadProgress(position, now_ms)

    def may_have_missed(self, fetched: Fetched) -> bool:
        """Return True if records may be missing between this position and the page fetched from it.

        The caller then reads AT the position again, and passes the page to
        `RetentionCheck.check_start`.
        """
        now_ms = fetched.service_time_ms
        if self.seen_ms is None or now_ms - self.seen_ms <= ITERATOR_LIFE_MS:
            return False
        return may_have_lost(self.position, now_ms, SHORTEST_RETENTION_MS)
