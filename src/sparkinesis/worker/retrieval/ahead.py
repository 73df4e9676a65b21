"""Fetching a shard's pages ahead of the record processor."""

# A fetcher works in steps, and waits in none. What wakes it:
#
#   a page was taken   if as many wait as the limits permit
#   memory is free     if the budget had none left
#   data has arrived   if its source is a subscription
#   it was stopped
#
# The limits of pages, bytes and records bound what waits of one shard, and the memory budget what
# waits of all: with the limits alone, 200 shards with slow record processors took some gigabytes.
# Memory is asked for before the page is, or the page would be there without room.
#
# Each error of a step is kept for the consumer, an unexpected one as well: an error that ended a
# fetching thread in silence left its shard waiting for ever.

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from sparkinesis.stream.page import Fetched
from sparkinesis.stream.position import Position
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.retrieval.memory import Account, Hold, page_memory, records_within
from sparkinesis.worker.retrieval.step_pool import StepPool, Work
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage, WaitingPages


class FetchRequest(msgspec.Struct, frozen=True):
    """A shard consumer's request to fetch a shard from a position."""

    shard_id: str
    start: Position
    inclusive: bool
    """True to begin AT the record of ``start``; False to begin after it."""
    memory: Account
    """The memory account for the pages."""
    taker: Work
    """The work that is woken when a page, an error or the end can be taken."""
    pool: StepPool
    """The threads that fetch."""
    announce_silence: bool = False
    """True to wake the taker for each empty page at the tip. Otherwise for the first one only, and
    the latest of the others waits until a step takes it."""


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
    time at which the page is due.

    An error stops the fetching. Make a new `FetchAhead` to resume.
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
        self.waiting = WaitingPages(
            limits, request.start, announce_silence=request.announce_silence
        )
        self._next_after = next_after
        self._open_source = open_source
        self._request = request
        self._clock = clock
        self._lock = threading.Lock()
        """Guards the source and the memory that was asked for, which `stop` ends."""
        self._source: PageSource | None = None
        self._asked: Hold | None = None
        """The memory that was asked for the next page."""
        # The log lines of the steps name the same worker and shard as those of their creator.
        self._work = request.pool.new_work(self._run)

    def start(self) -> FetchAhead:
        self._work.start()
        return self

    def take(self) -> FetchedPage | None:
        """Return the next page; None if it is not fetched yet. Never waits.

        Raises the errors of fetching, after the pages that came before. For one thread.
        """
        page, was_awaited = self.waiting.take()
        if was_awaited:
            self._work.wake()
        return page

    def stop(self) -> None:
        """Stop fetching; returns at once. For any thread."""
        pages = self.waiting.stop()
        with self._lock:
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
            self.waiting.fail(error)
            pause = None
        if pause is None:
            if self._asked is not None:
                self._asked.release()
            self._drop_source()
            self._request.taker.wake(by=self._work)
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
        if self.waiting.is_stopped:
            return None
        if not self.waiting.await_room():
            return math.inf  # `take` wakes it
        pause = source.due_in(self._work.wake)
        if pause > 0:
            return pause
        hold = self._hold(source)
        if not hold.is_decided:
            return math.inf  # the budget wakes it
        self._asked = None
        page = self._fetch(source, hold)
        if page is not None:
            if self.waiting.heard_at is None:
                # The first request may have been refused for a while, because the subscription
                # before it was young: one that jumped as soon as its first page came was refused
                # again, and nothing was delivered.
                self.next_from = page.fetched_at + self._next_after
            if self.waiting.put(page):
                self._request.taker.wake(by=self._work)
                if page.at_shard_end:
                    return None
        # The next step finds out whether it was stopped, which wakes it.
        return max(0.0, source.due_in(self._work.wake))

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
        if self.waiting.is_stopped:
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
