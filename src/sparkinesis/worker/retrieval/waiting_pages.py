"""The pages of a shard that are fetched and wait for its consumer."""

# Here a page crosses from one thread to another: a step of the pool that fetches puts it, and wakes
# the work of the shard's consumer; a step of that work takes it, and wakes the fetcher if the page
# made room. Neither waits for the other.
#
# A silence, which is a run of empty pages at the tip, counts as one page: its latest. If each were
# announced, a thousand idle shards would wake their consumers a thousand times a second for
# nothing. And it takes no place within the limits: where they permit one page, a silence filled the
# place, and an idle shard was read only as often as its consumer looked.

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from sparkinesis.stream.page import Fetched, Record, is_empty_at_tip
from sparkinesis.stream.position import AfterRecord, Position
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.retrieval.memory import Hold


class FetchedPage(msgspec.Struct, frozen=True):
    """A page on its way to the record processor."""

    fetched: Fetched
    at_shard_end: bool
    """True for the last page of a shard that has ended."""
    fetched_at: float
    """The time of the fetch, by the worker's clock (seconds)."""
    hold: Hold | None = None
    """The memory that the page takes, until `release`; None: the memory is not counted."""
    aggregates: Sequence[Record] = ()
    """The records that are to be unpacked, from when `BatchCutter` has looked for them on."""

    @property
    def records(self) -> Sequence[Record]:
        """The records as the stream stores them: aggregates are not unpacked."""
        return self.fetched.page.records

    @property
    def service_time_ms(self) -> int:
        """The time at which the page was fetched, by the service's clock (epoch ms)."""
        return self.fetched.service_time_ms

    def arrival(self, record: Record) -> float:
        """Return the time, by the worker's clock, at which a record arrived in the stream.

        The distance from the tip stands in for an arrival that is not known.
        """
        arrived_ms = record.arrived_ms
        waited_ms = 0 if arrived_ms is None else self.service_time_ms - arrived_ms
        return self.fetched_at - max(waited_ms, self.fetched.page.millis_behind_latest or 0) / 1000

    def release(self) -> None:
        """Give the page's memory back."""
        if self.hold is not None:
            self.hold.release()


class WaitingPages:
    """The pages that one shard has waiting, from the step that fetches to the step that takes them.

    Each side is for one thread at a time; the state is for any thread.
    """

    def __init__(
        self, limits: AheadLimits, start: Position, *, announce_silence: bool = False
    ) -> None:
        """``start``: the position at which fetching begins; its own record is done."""
        self.heard_at: float | None = None
        """The time of the last page, taken or not."""
        self.is_stopped = False
        """True after `stop`: no page is put any more."""
        self._limits = limits
        self._done = start.sequence_number if isinstance(start, AfterRecord) else None
        self._announces_silence = announce_silence
        self._lock = threading.Lock()
        self._pages: deque[FetchedPage] = deque()
        self._error: BaseException | None = None
        self._is_awaited = False
        """True if the fetcher waits until a page is taken."""
        self._is_silent = False
        """True if the last page was empty, at the tip."""

    # --- for the fetcher

    def await_room(self) -> bool:
        """Return True if another page may be fetched; else `take` says when to ask again."""
        with self._lock:
            self._is_awaited = not self._has_room()
            return not self._is_awaited

    def _has_room(self) -> bool:
        """Return True if fewer pages than the limits wait to be taken.

        A silence does not count: the records after it would wait until it is taken.
        """
        waiting = [
            page.fetched
            for page in self._pages
            if self._announces_silence or not is_empty_at_tip(page.fetched.page)
        ]
        limits = self._limits
        return (
            len(waiting) < limits.pages
            and sum(fetched.size for fetched in waiting) < limits.bytes
            and sum(len(fetched.page.records) for fetched in waiting) < limits.records
        )

    def put(self, page: FetchedPage) -> bool:
        """Have a page wait; return True if it is news, which the taker is to be woken for.

        Once stopped, the page is dropped.
        """
        was_silent = self._is_silent
        self._is_silent = is_empty_at_tip(page.fetched.page) and not page.at_shard_end
        is_news = self._announces_silence or not (was_silent and self._is_silent)
        with self._lock:
            if self.is_stopped:
                page.release()
                return False
            self.heard_at = page.fetched_at
            # Of a silence, the latest page says everything.
            replaced = self._pages.pop() if self._pages and not is_news else None
            self._pages.append(page)
        if replaced is not None:
            replaced.release()
        return is_news

    def fail(self, error: BaseException) -> None:
        """Have `take` raise an error after the pages that came before."""
        with self._lock:
            self._error = error

    def stop(self) -> Sequence[FetchedPage]:
        """Take no more pages; return those that waited, which are to be released."""
        with self._lock:
            self.is_stopped = True
            pages = list(self._pages)
            self._pages.clear()
        return pages

    # --- for the consumer

    def take(self) -> tuple[FetchedPage | None, bool]:
        """Return the next page, or None; and True if the fetcher waits for its place.

        Never waits. Raises the errors of fetching.
        """
        with self._lock:
            page = self._pages.popleft() if self._pages else None
            error = self._error if page is None else None
            was_awaited, self._is_awaited = self._is_awaited, False
        if error is not None:
            raise error
        return page, was_awaited

    @property
    def oldest_at(self) -> float | None:
        """The arrival, by the worker's clock, of the first record that waits."""
        with self._lock:
            for page in self._pages:
                for record in page.records[:2]:
                    if record.sequence_number != self._done:
                        return page.arrival(record)
        return None
