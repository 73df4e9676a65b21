"""Fetching a shard's pages ahead of the record processor, by GetRecords, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Protocol

from sparkinesis.stream.client import Fetched
from sparkinesis.stream.cursor import ShardCursor
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

    def take(self) -> FetchedPage | None:
        """The next page if there is one; never waits. Raises what fetching raised."""

    def stop(self) -> None:
        """Fetch no more; returns at once."""


class Polling:
    """Fetches by GetRecords; `take` is for one thread, and ``on_page`` is called from another.

    No wait between calls while the shard has more to give than was fetched, beyond what its budget
    asks for; ``idle_time`` seconds at the tip, also if records trickle in there. An error stops the
    fetching: `take` raises it behind the pages that came before, and a new `Polling` goes on.
    """

    def __init__(
        self,
        open_cursor: Callable[[Position], ShardCursor],
        start: Position,
        *,
        max_records: int,
        idle_time: float,
        on_page: Callable[[], None],
        name: str = "get-records",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_cursor = open_cursor
        self._start = start
        self._limit = max_records
        self._idle_time = idle_time
        self._on_page = on_page
        self._clock = clock
        self._changed = threading.Condition()
        self._pages: deque[FetchedPage] = deque()
        self._error: BaseException | None = None
        self._stopped = False
        # Logs as the shard's consumer, who makes it.
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name=name, daemon=True)

    def start(self) -> Polling:
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

    def _run(self) -> None:
        try:
            self._fetch_all()
        except BaseException as error:  # noqa: BLE001 - else the shard would wait for ever
            with self._changed:
                self._error = error
        self._on_page()

    def _fetch_all(self) -> None:
        cursor = self._open_cursor(self._start)
        while self._wait_for_room():
            fetched = cursor.fetch(self._limit)
            page = FetchedPage(fetched, cursor.at_end, self._clock())
            with self._changed:
                if self._stopped:
                    return
                self._pages.append(page)
            self._on_page()
            if cursor.at_end:
                return
            if not fetched.page.millis_behind_latest and len(fetched.page.records) < self._limit:
                self._idle(self._idle_time)

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

    def _idle(self, seconds: float) -> None:
        until = self._clock() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, max(0.0, until - self._clock()))
