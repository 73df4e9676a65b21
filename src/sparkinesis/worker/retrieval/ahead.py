"""Fetching a shard's pages ahead of the record processor, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Protocol

from sparkinesis.stream.calls.client import Fetched
from sparkinesis.stream.position import Position
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.retrieval.memory import Account, Hold
from sparkinesis.worker.retrieval.memory_estimates import page_memory, records_within


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page, and whether it is the last of a shard that has ended."""

    fetched: Fetched
    at_shard_end: bool
    since: float
    """When it was fetched, by the worker's clock (seconds)."""
    hold: Hold | None = None
    """The memory that it takes, to be released when it is used up; None: nobody counts it."""


class Retrieval(Protocol):
    """Where a shard consumer gets its pages from."""

    @property
    def next_from(self) -> float:
        """From when on another one can take its place at once, by the worker's clock (seconds)."""

    def take(self) -> FetchedPage | None:
        """The next page if there is one; never waits. Raises what fetching raised."""

    def stop(self) -> None:
        """Fetch no more; returns at once. For any thread."""


class OpenRetrieval(Protocol):
    """Begins to fetch a shard behind ``start``, or AT its record; ``on_page`` is told of pages.

    memory: the account that pages are counted in.
    """

    def __call__(
        self,
        shard_id: str,
        start: Position,
        on_page: Callable[[], None],
        *,
        inclusive: bool,
        memory: Account,
    ) -> Retrieval: ...


class RetrievalMode(Protocol):
    """How a worker fetches: one for all of its shards. For any thread."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """See to what must be there before a shard is read.

        wait: for so many seconds at most; True: no longer, as the worker is to shut down.
        """

    def open(
        self,
        shard_id: str,
        start: Position,
        on_page: Callable[[], None],
        *,
        inclusive: bool,
        memory: Account,
    ) -> Retrieval:
        """See `OpenRetrieval`."""

    def finish(self, is_last: Callable[[], bool]) -> None:
        """The worker ends gracefully. ``is_last``: looks whether no other one goes on."""


class PageSource(Protocol):
    """A place in a shard, from which one page after the other is fetched by one thread."""

    @property
    def at_end(self) -> bool:
        """Whether the shard is closed, and every record of it was fetched."""

    @property
    def wanted(self) -> int:
        """The memory that the next page may take while it is fetched, in bytes."""

    @property
    def is_divisible(self) -> bool:
        """Whether a smaller page can be asked for, and a part of a page kept."""

    def wait(self) -> bool:
        """Wait until the next page is due, before memory is held for it; False: it was stopped."""

    def fetch(self, room: int) -> Fetched | None:
        """The next page, waiting for it; None: it was stopped. Not to be called `at_end`.

        room: the memory that is held for it; a page may turn out larger.
        """

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        """Keep the first ``count`` records of the last page, where it is divisible.

        The others are fetched again.
        """

    def stop(self) -> None:
        """End a `fetch` that waits, and let go of connections. For any thread."""


class FetchAhead:
    """Fetches within limits; `take` is for one thread, and ``on_page`` is called from another.

    A page is fetched while fewer pages, bytes and records than the limits wait to be taken, and
    when ``memory`` has room for it.

    An error stops the fetching: `take` raises it behind the pages that came before, and a new
    `FetchAhead` goes on.
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
        # Logs as the shard's consumer, who makes it.
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
            if page.hold is not None:
                page.hold.release()
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
            while self._wait_for_room() and source.wait() and self._fetch(source):
                self._on_page()
                if source.at_end:
                    return
        finally:
            source.stop()

    def _wait_for_room(self) -> bool:
        """Whether to fetch on; returns when what waits to be processed is below all limits."""
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

    def _fetch(self, source: PageSource) -> bool:
        """Fetch a page once there is memory for it; False: it was stopped."""
        wanted = source.wanted
        hold = self._memory.ask(wanted, None if source.is_divisible else wanted)
        is_kept = False
        try:
            fetched = source.fetch(room) if (room := self._wait_for_memory(hold)) else None
            if fetched is not None:
                fetched = _fitted(fetched, source, hold)
                is_kept = self._keep(FetchedPage(fetched, source.at_end, self._clock(), hold))
        finally:
            if not is_kept:
                hold.release()
        return is_kept

    def _wait_for_memory(self, hold: Hold) -> int:
        """The bytes that are held; 0: it was stopped."""
        with self._changed:
            if self._stopped:
                return 0
            self._asked = hold
        return hold.wait()

    def _keep(self, page: FetchedPage) -> bool:
        """Whether the page is kept for `take`; not if it was stopped."""
        with self._changed:
            if self._stopped:
                return False
            if self._is_first:
                # It may have been refused for a while, as the one before it was young.
                self.next_from = page.since + self._next_after
                self._is_first = False
            self._pages.append(page)
            return True


def _fitted(fetched: Fetched, source: PageSource, hold: Hold) -> Fetched:
    """As much of a page as there is memory for; ``hold`` holds that much from now on."""
    size = page_memory(fetched)
    room = hold.resize(size)
    if room < size:
        # Its records are larger than those before.
        fetched = source.keep(fetched, records_within(fetched, room))
        hold.force(page_memory(fetched))
    return fetched
