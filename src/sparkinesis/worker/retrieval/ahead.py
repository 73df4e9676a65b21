"""Fetching a shard's pages ahead of the record processor."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from sparkinesis.stream.page import Fetched, Record, is_empty_at_tip
from sparkinesis.stream.position import AfterRecord, Position
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.retrieval.memory import Account, Hold
from sparkinesis.worker.retrieval.memory_estimates import page_memory, records_within
from sparkinesis.worker.retrieval.step_pool import StepPool, Work


class FetchedPage(msgspec.Struct, frozen=True):
    """A page on its way to the record processor."""

    fetched: Fetched
    at_shard_end: bool
    """True for the last page of a shard that has ended."""
    fetched_at: float
    """The time of the fetch, by the worker's clock (seconds)."""
    hold: Hold | None = None
    """The memory that the page takes, until `release`; None: the memory is not counted."""

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


class FetchRequest(msgspec.Struct, frozen=True):
    """A shard consumer's request to fetch a shard from a position."""

    shard_id: str
    start: Position
    inclusive: bool
    """True to begin AT the record of ``start``; False to begin after it."""
    memory: Account
    """The memory account for the pages."""
    on_page: Callable[[Work], None]
    """Called from a step of the given work when a page, an error or the end can be taken."""
    pool: StepPool
    """The threads that fetch."""
    announce_silence: bool = False
    """True to call ``on_page`` for each empty page at the tip. Otherwise for the first one only,
    and the latest of the others waits until somebody calls `FetchAhead.take`."""


class RetrievalMode(Protocol):
    """The way in which a worker fetches all of its shards. For any thread."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """Set up the resources that reading needs, such as a registered consumer; here none.

        wait: sleeps for a number of seconds; returns True, early, if the worker is to shut down.
        """
        del wait

    def open(self, request: FetchRequest) -> FetchAhead:
        """Start to fetch a shard."""

    def finish(self, is_last: Callable[[], bool]) -> None:
        """Clean up after a worker that ends gracefully; here nothing.

        is_last: asks whether no other worker of the application is running.
        """
        del is_last


class PageSource(Protocol):
    """A shard's pages, fetched one after the other. For one thread at a time, except `stop`."""

    @property
    def at_end(self) -> bool:
        """True once the shard has ended and its last record was fetched."""

    @property
    def wanted(self) -> int:
        """The most memory that the next page takes while it is fetched, in bytes."""

    @property
    def is_divisible(self) -> bool:
        """True if a smaller page can be asked for, and a page can be kept in part."""

    def due_in(self, wake: Callable[[], None]) -> float:
        """Return the seconds until the next page can be fetched; 0: now.

        wake: is called if that changes, such as when data arrives.
        """

    def fetch(self, room: int) -> Fetched | None:
        """Return the next page; None if there is none: `due_in` says when to try again.

        Must not be called `at_end`.

        room: the bytes that are reserved for the page; the page may turn out larger.
        """

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        """Return the first ``count`` records of the last page, where it is divisible.

        The other records are fetched again.
        """

    def stop(self) -> None:
        """End a waiting `fetch`, and close connections. For any thread."""


class FetchAhead:
    """Fetches a shard's pages, within limits, in steps that a pool of threads runs.

    A page is fetched while fewer pages, bytes and records than the limits wait to be taken, and
    when ``memory`` has room for the page. No thread is held while one of these is awaited, or the
    time at which the page is due. `take` is for one thread; ``on_page`` is called from the pool.

    An error stops the fetching: `take` raises the error after the pages that came before. Make a
    new `FetchAhead` to resume.
    """

    def __init__(
        self,
        request: FetchRequest,
        open_source: Callable[[], PageSource],
        limits: AheadLimits,
        clock: Callable[[], float],
        next_after: float = 0.0,
    ) -> None:
        """Prepare to fetch; `start` begins.

        next_after: seconds from the first page to `next_from`.
        """
        self.next_from = clock() + next_after
        """The time from which another retrieval may replace this one without a wait, by ``clock``
        (seconds)."""
        self._next_after = next_after
        self._open_source = open_source
        self._request = request
        self._limits = limits
        self._clock = clock
        self.heard_at: float | None = None
        """The time of the last page, taken or not. For any thread."""
        self._lock = threading.Lock()
        self._pages: deque[FetchedPage] = deque()
        self._error: BaseException | None = None
        self._stopped = False
        self._source: PageSource | None = None
        self._waits_for_room = False
        """True while too much waits to be taken."""
        self._asked: Hold | None = None
        """The memory that was asked for the next page."""
        self._is_first = True
        self._is_silent = False
        """True if the last page was empty, at the tip."""
        # The log lines of the steps name the same worker and shard as those of their creator.
        self._work = request.pool.new_work(self._run)

    def start(self) -> FetchAhead:
        self._work.start()
        return self

    def take(self) -> FetchedPage | None:
        """Return the next page; None if it is not fetched yet. Never waits.

        Raises the errors of fetching.
        """
        with self._lock:
            page = self._pages.popleft() if self._pages else None
            error = self._error if page is None else None
            waited, self._waits_for_room = self._waits_for_room, False
        if error is not None:
            raise error
        if waited:
            self._work.wake()
        return page

    @property
    def oldest_at(self) -> float | None:
        """The arrival, by the worker's clock, of the first record that waits. For any thread.

        The record of the start is done.
        """
        start = self._request.start
        done = start.sequence_number if isinstance(start, AfterRecord) else None
        with self._lock:
            for page in self._pages:
                for record in page.records[:2]:
                    if record.sequence_number != done:
                        return page.arrival(record)
        return None

    @property
    def is_stopped(self) -> bool:
        """True after `stop`. For any thread."""
        return self._stopped

    def stop(self) -> None:
        """Stop fetching; returns at once. For any thread."""
        with self._lock:
            self._stopped = True
            pages = list(self._pages)
            self._pages.clear()
            source, asked = self._source, self._asked
        if asked is not None:
            asked.cancel()
        for page in pages:
            page.release()
        if source is not None:
            source.stop()
        self._work.wake()

    def _run(self) -> float | None:
        """Take one step; return the seconds until the next, or None after the last."""
        try:
            pause = self._fetch_if_due()
        except BaseException as error:  # noqa: BLE001 - else the shard would wait for ever
            with self._lock:
                self._error = error
            pause = None
        if pause is None:
            if self._asked is not None:
                self._asked.release()
            self._drop_source()
            self._request.on_page(self._work)
        return pause

    def _drop_source(self) -> None:
        """Stop the source, and close the connection of a subscription with its last reference."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.stop()

    def _fetch_if_due(self) -> float | None:
        """Fetch a page if one is due and has room; return the pause as `_run` does."""
        if self._source is None:
            source = self._open_source()
            with self._lock:
                self._source = source
        source = self._source
        with self._lock:
            if self._stopped:
                return None
            self._waits_for_room = not self._has_room()
            if self._waits_for_room:
                return math.inf  # `take` wakes it
        pause = source.due_in(self._work.wake)
        if pause > 0:
            return pause
        hold = self._hold(source)
        if not hold.is_decided:
            return math.inf  # the budget wakes it
        self._asked = None
        page = self._fetch(source, hold)
        if page is not None and self._put(page):
            self._request.on_page(self._work)
            if page.at_shard_end:
                return None
        # The next step finds out whether it was stopped, which wakes it.
        return max(0.0, source.due_in(self._work.wake))

    def _has_room(self) -> bool:
        """Return True if fewer pages than the limits wait to be taken.

        A silence does not count: the records after it would wait until somebody takes it.
        """
        waiting = [
            page.fetched
            for page in self._pages
            if self._request.announce_silence or not is_empty_at_tip(page.fetched.page)
        ]
        limits = self._limits
        return (
            len(waiting) < limits.pages
            and sum(fetched.size for fetched in waiting) < limits.bytes
            and sum(len(fetched.page.records) for fetched in waiting) < limits.records
        )

    def _hold(self, source: PageSource) -> Hold:
        """Ask for the memory of the next page, once."""
        if self._asked is not None:
            return self._asked
        wanted = source.wanted
        hold = self._request.memory.ask(
            wanted, None if source.is_divisible else wanted, self._work.wake
        )
        with self._lock:
            self._asked = hold
            if self._stopped:
                hold.cancel()
        return hold

    def _fetch(self, source: PageSource, hold: Hold) -> FetchedPage | None:
        """Fetch a page into the memory that was granted; None: there is none, or no memory."""
        try:
            fetched = source.fetch(hold.size) if hold.size else None
            if fetched is not None:
                fetched = _cut_to_memory(fetched, source, hold)
                return FetchedPage(fetched, source.at_end, self._clock(), hold)
        except BaseException:
            hold.release()
            raise
        hold.release()
        return None

    def _put(self, page: FetchedPage) -> bool:
        """Let `take` have the page; return True if that is to be announced.

        Once stopped, the page is dropped.
        """
        was_silent = self._is_silent
        self._is_silent = is_empty_at_tip(page.fetched.page) and not page.at_shard_end
        is_news = self._request.announce_silence or not (was_silent and self._is_silent)
        with self._lock:
            if self._stopped:
                page.release()
                return False
            self.heard_at = page.fetched_at
            if self._is_first:
                # The first request may have been refused for a while, because the subscription
                # before it was young.
                self.next_from = page.fetched_at + self._next_after
                self._is_first = False
            # Of a silence, the latest page says everything.
            replaced = self._pages.pop() if self._pages and not is_news else None
            self._pages.append(page)
        if replaced is not None:
            replaced.release()
        return is_news


OpenRetrieval: TypeAlias = Callable[[FetchRequest], FetchAhead]
"""Starts to fetch a shard."""


def _cut_to_memory(fetched: Fetched, source: PageSource, hold: Hold) -> Fetched:
    """Return as much of a page as there is memory for, and hold that much from now on."""
    size = page_memory(fetched)
    room = hold.resize(size)
    if room < size:
        # The records are larger than those of the previous page.
        fetched = source.keep(fetched, records_within(fetched, room))
        hold.force(page_memory(fetched))
    return fetched
