"""The pages of a shard that are fetched, wait, and are cut where the memory of a batch ends."""

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
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from sparkinesis.stream.kpl.objects import estimate_unpacked
from sparkinesis.stream.page import Fetched, Record, is_empty_at_tip, split_page
from sparkinesis.stream.position import AfterRecord, Position
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.retrieval.memory import (
    FIRST_EXPANSION,
    WITHOUT_UNPACKING,
    Hold,
    MemoryBudget,
    batch_memory,
    batch_records_within,
    estimate_batch_memory,
    largest_batch_memory,
    measure_expansion,
)


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


class BatchCutter:
    """Cuts a page where the memory of one batch ends, and holds the memory of a shard's batches.

    For one thread, that of the shard's consumer. Records take less memory in a page than in a
    batch, as columns and as objects: so what does not fit into a batch waits as a page.
    """

    def __init__(self, budget: MemoryBudget, *, deaggregate: bool = True) -> None:
        self.rest_of_page: FetchedPage | None = None
        """The part of a page that did not fit into the memory of one batch."""
        self._account = budget.account()
        self._small = budget.limit // 64
        """Bytes. A smaller batch is reserved by its largest possible size: an estimate would have
        to look at each record."""
        self._held: deque[Hold] = deque()
        """The memory of each batch that is in use, in the order of the shard."""
        self._deaggregates = deaggregate
        self._expansion = FIRST_EXPANSION if deaggregate else WITHOUT_UNPACKING

    @property
    def held(self) -> int:
        """The bytes of the batches. For any thread."""
        return self._account.held

    def next_part(self, take: Callable[[], FetchedPage | None]) -> FetchedPage | None:
        """Return as much of the next page as a batch has memory for, and reserve that.

        take: returns the next page. Returns None if no page is ready, or if other batches of the
        shard have to be released before.
        """
        self.rest_of_page = self.rest_of_page or take()
        if self.rest_of_page is None:
            return None
        part, self.rest_of_page = self._split(self.rest_of_page)
        return part

    def _split(self, page: FetchedPage) -> tuple[FetchedPage | None, FetchedPage | None]:
        """Reserve memory for a page's batch; return the part that fits, and the rest of the page.

        The first part has one record at least; it is None if there is no memory for that.
        """
        records = page.records
        if not records:
            return page, None
        size = largest_batch_memory(page.fetched, self._expansion)
        if size > self._small:
            size = estimate_batch_memory(page.fetched, self._expansion)
        hold = self._account.ask(size)
        room = hold.size  # decided, unless the account holds others: else it gets its floor at once
        if room == 0:
            hold.release()
            return None, page
        self._held.append(hold)
        if room >= size:
            return page, None
        count = batch_records_within(records, room, self._expansion)
        if count == len(records):
            return page, None
        head, rest = split_page(page.fetched, count)
        return replace(page, fetched=head, at_shard_end=False), replace(page, fetched=rest)

    def measure_batch(self, records: Sequence[Record]) -> None:
        """Correct the last reservation to the batch's size, and use that for the next estimate."""
        unpacked = estimate_unpacked(records) if self._deaggregates else None
        memory = batch_memory(records, unpacked)
        if records:
            self._held[-1].force(memory)
        if unpacked is not None and unpacked.rows > len(records):
            self._expansion = measure_expansion(records, memory)

    def release_batches(self, in_use: int = 0) -> None:
        """Give the memory of batches back, but for that of the last ones, which are in use."""
        while len(self._held) > in_use:
            self._held.popleft().release()

    def release_last(self, in_use: int) -> None:
        """Give the memory of a batch back that is not delivered, after those in use."""
        while len(self._held) > in_use:
            self._held.pop().release()

    def drop_rest_of_page(self) -> None:
        """Release what is left of a page: it is fetched again."""
        if self.rest_of_page is not None:
            self.rest_of_page.release()
            self.rest_of_page = None

    def close(self) -> None:
        """Close the account, and release the batches."""
        self.release_batches()
        self._account.close()
