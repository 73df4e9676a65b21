"""Cuts pages into parts of which each becomes a batch, by the memory that there is for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from sparkinesis.stream.kpl.magic import aggregates_of
from sparkinesis.stream.kpl.objects import estimate_unpacked
from sparkinesis.stream.page import Record, size_of, split_page
from sparkinesis.worker.retrieval.memory import (
    FIRST_EXPANSION,
    Hold,
    MemoryBudget,
    batch_memory,
    batch_records_within,
    estimate_batch_memory,
    measure_expansion,
)
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage


class BatchCutter:
    """Cuts a page where the memory of one batch ends, and holds the memory of a shard's batches.

    For one thread, that of the shard's consumer. Records take less memory in a page than in a
    batch, as columns and as objects: so what does not fit into a batch waits as a page.

    The records of a page are looked at once, for aggregates. Their size is the page's estimate.
    """

    def __init__(self, budget: MemoryBudget, *, deaggregate: bool = True) -> None:
        self.rest_of_page: FetchedPage | None = None
        """The part of a page that did not fit into the memory of one batch."""
        self._account = budget.account()
        self._held: deque[Hold] = deque()
        """The memory of each batch that is in use, in the order of the shard."""
        self._deaggregates = deaggregate
        self._expansion = FIRST_EXPANSION

    @property
    def held(self) -> int:
        """The bytes of the batches. For any thread."""
        return self._account.held

    def next_part(self, take: Callable[[], FetchedPage | None]) -> FetchedPage | None:
        """Return as much of the next page as a batch has memory for, and reserve that.

        The part has its aggregates, if these are to be unpacked.
        take: returns the next page. Returns None if no page is ready, or if other batches of the
        shard have to be released before.
        """
        if self.rest_of_page is None:
            page = take()
            if page is None:
                return None
            self.rest_of_page = self._with_aggregates(page)
        part, self.rest_of_page = self._split(self.rest_of_page)
        return part

    def _with_aggregates(self, page: FetchedPage) -> FetchedPage:
        aggregates = aggregates_of(page.records) if self._deaggregates else ()
        return replace(page, aggregates=aggregates) if aggregates else page

    def _split(self, page: FetchedPage) -> tuple[FetchedPage | None, FetchedPage | None]:
        """Reserve memory for a page's batch; return the part that fits, and the rest of the page.

        The first part has one record at least; it is None if there is no memory for that.
        """
        records = page.records
        if not records:
            return page, None
        size = estimate_batch_memory(page.fetched, page.aggregates, self._expansion)
        hold = self._account.ask(size)
        room = hold.size  # decided, unless the account holds others: else it gets its floor at once
        if room == 0:
            hold.release()
            return None, page
        self._held.append(hold)
        if room >= size:
            return page, None
        count = batch_records_within(records, page.aggregates, room, self._expansion)
        if count == len(records):
            return page, None
        head, rest = split_page(page.fetched, count)
        among = len(aggregates_of(head.page.records)) if page.aggregates else 0
        return (
            replace(page, fetched=head, at_shard_end=False, aggregates=page.aggregates[:among]),
            replace(page, fetched=rest, aggregates=page.aggregates[among:]),
        )

    def selected(self, part: FetchedPage, records: Sequence[Record]) -> FetchedPage:
        """Return a part with those of its records only that are delivered."""
        if len(records) == len(part.records):
            return part
        fetched = part.fetched
        page = replace(fetched.page, records=records)
        fetched = replace(fetched, page=page, size=size_of(records))
        return self._with_aggregates(replace(part, fetched=fetched, aggregates=()))

    def measure_batch(self, part: FetchedPage) -> None:
        """Correct the last reservation to the batch's size, and use that for the next estimate."""
        unpacked = estimate_unpacked(part.aggregates)
        if part.records:
            self._held[-1].force(batch_memory(part.fetched, part.aggregates, unpacked))
        if unpacked.rows > len(part.aggregates):
            self._expansion = measure_expansion(part.aggregates, unpacked)

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
