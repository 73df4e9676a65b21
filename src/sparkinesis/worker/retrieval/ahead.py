"""Fetching a shard's pages ahead of the record processor, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sparkinesis.stream.calls.client import Fetched
from sparkinesis.stream.page import ChildShard, Record
from sparkinesis.stream.position import Position
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.retrieval.memory import Account, Hold
from sparkinesis.worker.retrieval.memory_estimates import page_memory, records_within


@dataclass(frozen=True, slots=True)
class FetchedPage:
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

    @property
    def millis_behind_latest(self) -> int | None:
        return self.fetched.page.millis_behind_latest

    @property
    def child_shards(self) -> Sequence[ChildShard]:
        return self.fetched.page.child_shards or ()

    def release(self) -> None:
        """Give the page's memory back."""
        if self.hold is not None:
            self.hold.release()


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A shard consumer's request to fetch a shard from a position."""

    shard_id: str
    start: Position
    inclusive: bool
    """True to begin AT the record of ``start``; False to begin after it."""
    memory: Account
    """The memory account for the pages."""
    on_page: Callable[[], None]
    """Called from the fetching thread when a page, an error or the end can be taken."""


class Retrieval(Protocol):
    """The source of a shard consumer's pages."""

    @property
    def next_from(self) -> float:
        """The time from which another retrieval may replace this one without a wait.

        By the worker's clock (seconds).
        """

    def take(self) -> FetchedPage | None:
        """Return the next page; None if it is not fetched yet. Never waits.

        Raises the errors of fetching.
        """

    def stop(self) -> None:
        """Stop fetching; returns at once. For any thread."""


OpenRetrieval: TypeAlias = Callable[[FetchRequest], Retrieval]
"""Starts to fetch a shard."""


class RetrievalMode(Protocol):
    """The way in which a worker fetches all of its shards. For any thread."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """Set up the resources that reading needs, such as a registered consumer.

        wait: sleeps for a number of seconds; returns True, early, if the worker is to shut down.
        """

    def open(self, request: FetchRequest) -> Retrieval:
        """Start to fetch a shard."""

    def finish(self, is_last: Callable[[], bool]) -> None:
        """Clean up after a worker that ends gracefully.

        is_last: asks whether no other worker of the application is running.
        """


class PageSource(Protocol):
    """A shard's pages, fetched one after the other by one thread."""

    @property
    def at_end(self) -> bool:
        """True once the shard has ended and its last record was fetched."""

    @property
    def wanted(self) -> int:
        """The most memory that the next page takes while it is fetched, in bytes."""

    @property
    def is_divisible(self) -> bool:
        """True if a smaller page can be asked for, and a page can be kept in part."""

    def wait(self) -> bool:
        """Wait until the next page is due, before memory is reserved for it.

        Returns False if the source was stopped.
        """

    def fetch(self, room: int) -> Fetched | None:
        """Wait for the next page, and return it; None if the source was stopped.

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
    """Fetches a shard's pages in a thread of its own, within limits.

    A page is fetched while fewer pages, bytes and records than the limits wait to be taken, and
    when ``memory`` has room for the page. `take` is for one thread; ``on_page`` is called from the
    fetching thread.

    An error stops the fetching: `take` raises the error after the pages that came before. Make a
    new `FetchAhead` to resume.
    """

    def __init__(
        self,
        open_source: Callable[[], PageSource],
        *,
        on_page: Callable[[], None],
        memory: Account,
        limits: AheadLimits,
        name: str,
        clock: Callable[[], float],
        next_after: float = 0.0,
    ) -> None:
        self.next_from = clock() + next_after
        self._next_after = next_after
        self._open_source = open_source
        self._on_page = on_page
        self._memory = memory
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._pages: deque[FetchedPage] = deque()
        self._error: BaseException | None = None
        self._stopped = False
        self._source: PageSource | None = None
        self._asked: Hold | None = None
        self._is_first = True
        # The thread's log lines name the same worker and shard as those of its creator.
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name=name, daemon=True)

    def start(self) -> FetchAhead:
        self._thread.start()
        return self

    def take(self) -> FetchedPage | None:
        with self._changed:
            if self._pages:
                self._changed.notify()
                return self._pages.popleft()
            error = self._error
        if error is not None:
            raise error
        return None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            pages = list(self._pages)
            self._pages.clear()
            self._changed.notify()
            source, asked = self._source, self._asked
        if asked is not None:
            asked.cancel()
        for page in pages:
            page.release()
        if source is not None:
            source.stop()

    def _run(self) -> None:
        try:
            self._fetch_all()
        except BaseException as error:  # noqa: BLE001 - else the shard would wait for ever
            with self._changed:
                self._error = error
        self._on_page()

    def _fetch_all(self) -> None:
        source = self._open_source()
        with self._changed:
            self._source = source
        try:
            while self._wait_for_room() and source.wait():
                page = self._fetch(source)
                if page is None or not self._put(page):
                    return
                self._on_page()
                if page.at_shard_end:
                    return
        finally:
            source.stop()

    def _wait_for_room(self) -> bool:
        """Wait until fewer pages than the limits wait to be taken; False: it was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room())
            return not self._stopped

    def _has_room(self) -> bool:
        waiting = [page.fetched for page in self._pages]
        limits = self._limits
        return (
            len(waiting) < limits.pages
            and sum(fetched.size for fetched in waiting) < limits.bytes
            and sum(len(fetched.page.records) for fetched in waiting) < limits.records
        )

    def _fetch(self, source: PageSource) -> FetchedPage | None:
        """Fetch a page once there is memory for it; None: it was stopped."""
        wanted = source.wanted
        hold = self._memory.ask(wanted, None if source.is_divisible else wanted)
        try:
            room = self._wait_for_memory(hold)
            fetched = source.fetch(room) if room else None
            if fetched is not None:
                fetched = _cut_to_memory(fetched, source, hold)
                return FetchedPage(fetched, source.at_end, self._clock(), hold)
        except BaseException:
            hold.release()
            raise
        hold.release()
        return None

    def _wait_for_memory(self, hold: Hold) -> int:
        """Wait for memory, and return the bytes that were granted; 0: it was stopped."""
        with self._changed:
            if self._stopped:
                return 0
            self._asked = hold
        return hold.wait()

    def _put(self, page: FetchedPage) -> bool:
        """Let `take` have the page; False: it was stopped, and the page is dropped."""
        with self._changed:
            if not self._stopped:
                if self._is_first:
                    # The first request may have been refused for a while, because the subscription
                    # before it was young.
                    self.next_from = page.fetched_at + self._next_after
                    self._is_first = False
                self._pages.append(page)
                return True
        page.release()
        return False


def _cut_to_memory(fetched: Fetched, source: PageSource, hold: Hold) -> Fetched:
    """Return as much of a page as there is memory for, and hold that much from now on."""
    size = page_memory(fetched)
    room = hold.resize(size)
    if room < size:
        # The records are larger than those of the previous page.
        fetched = source.keep(fetched, records_within(fetched, room))
        hold.force(page_memory(fetched))
    return fetched
