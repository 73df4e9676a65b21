"""Fetching a shard's pages ahead of the record processor, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Protocol

from sparkinesis.stream.client import Fetched
from sparkinesis.stream.position import Position

MAX_PAGES = 4
MAX_BYTES = 8 * 1_048_576
MAX_RECORDS = 30_000
"""How much is fetched ahead of a record processor (KCL ``maxPendingProcessRecordsInput``,
``maxByteSize``, ``maxRecordsCount``). A page is fetched while there is less than all of these."""


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page, and whether it is the last of a shard that has ended."""

    fetched: Fetched
    at_shard_end: bool
    since: float
    """When it was fetched, by the worker's clock (seconds)."""


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
    """Begins to fetch a shard behind ``start``, or AT its record; ``on_page`` is told of pages."""

    def __call__(
        self, shard_id: str, start: Position, on_page: Callable[[], None], *, inclusive: bool
    ) -> Retrieval: ...


class RetrievalMode(Protocol):
    """How a worker fetches: one for all of its shards. For any thread."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """See to what must be there before a shard is read.

        wait: for so many seconds at most; True: no longer, as the worker is to shut down.
        """

    def open(
        self, shard_id: str, start: Position, on_page: Callable[[], None], *, inclusive: bool
    ) -> Retrieval:
        """See `OpenRetrieval`."""

    def finish(self, is_last: Callable[[], bool]) -> None:
        """The worker ends gracefully. ``is_last``: looks whether no other one goes on."""


class PageSource(Protocol):
    """A place in a shard, from which one page after the other is fetched by one thread."""

    @property
    def at_end(self) -> bool:
        """Whether the shard is closed, and every record of it was fetched."""

    def fetch(self) -> Fetched | None:
        """The next page, waiting for it; None: it was stopped. Not to be called `at_end`."""

    def stop(self) -> None:
        """End a `fetch` that waits, and let go of connections. For any thread."""


class FetchAhead:
    """Fetches within limits; `take` is for one thread, and ``on_page`` is called from another.

    An error stops the fetching: `take` raises it behind the pages that came before, and a new
    `FetchAhead` goes on.
    """

    def __init__(
        self,
        open_source: Callable[[], PageSource],
        *,
        on_page: Callable[[], None],
        name: str,
        clock: Callable[[], float],
        next_after: float = 0.0,
    ) -> None:
        self.next_from = clock() + next_after
        self._next_after = next_after
        self._open_source = open_source
        self._on_page = on_page
        self._clock = clock
        self._changed = threading.Condition()
        self._pages: deque[FetchedPage] = deque()
        self._error: BaseException | None = None
        self._stopped = False
        self._source: PageSource | None = None
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
            self._pages.clear()
            self._changed.notify()
            source = self._source
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
        is_first = True
        try:
            while self._wait_for_room():
                fetched = source.fetch()
                if fetched is None:
                    return
                page = FetchedPage(fetched, source.at_end, self._clock())
                with self._changed:
                    if self._stopped:
                        return
                    if is_first:
                        # It may have been refused for a while, as the one before it was young.
                        self.next_from = page.since + self._next_after
                        is_first = False
                    self._pages.append(page)
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
        return (
            len(waiting) < MAX_PAGES
            and sum(fetched.size for fetched in waiting) < MAX_BYTES
            and sum(len(fetched.page.records) for fetched in waiting) < MAX_RECORDS
        )
