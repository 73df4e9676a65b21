"""The memory of one shard: pages that are fetched ahead, and the batches that are processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from sparkinesis.stream.kpl.objects import estimate_unpacked
from sparkinesis.stream.page import Record, split_page
from sparkinesis.worker.retrieval.ahead import FetchedPage
from sparkinesis.worker.retrieval.memory import Hold, MemoryBudget
from sparkinesis.worker.retrieval.memory_estimates import (
    FIRST_EXPANSION,
    WITHOUT_UNPACKING,
    batch_memory,
    batch_records_within,
    estimate_batch_memory,
    largest_batch_memory,
    measure_expansion,
)


class ShardAccounts:
    """The two accounts of a shard in a budget. For one thread, that of the shard's consumer."""

    def __init__(self, budget: MemoryBudget, *, deaggregate: bool = True) -> None:
        self.pages = budget.account()
        """Counts the pages that are fetched ahead."""
        self._batches = budget.account()
        """Counts the batches that the record processor is given, as columns and as objects."""
        self._small = budget.limit // 64
        """Bytes. A smaller batch is reserved by its largest possible size: an estimate would have
        to look at each record."""
        self._held: deque[Hold] = deque()
        """The memory of each batch that is in use, in the order of the shard."""
        self._deaggregates = deaggregate
        self._expansion = FIRST_EXPANSION if deaggregate else WITHOUT_UNPACKING

    def split(self, page: FetchedPage) -> tuple[FetchedPage | None, FetchedPage | None]:
        """Reserve memory for a page's batch; return the part that fits, and the rest of the page.

        The first part has one record at least; it is None if other batches of the shard have to be
        released before. Records take less memory in a page than in a batch, so the rest waits as a
        page.
        """
        records = page.records
        if not records:
            return page, None
        size = largest_batch_memory(page.fetched, self._expansion)
        if size > self._small:
            size = estimate_batch_memory(page.fetched, self._expansion)
        hold = self._batches.ask(size)
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
        """Give the memory of a batch back that is not delivered, behind those in use."""
        while len(self._held) > in_use:
            self._held.pop().release()

    @property
    def held(self) -> int:
        """The bytes that both accounts hold now. For any thread."""
        return self.pages.held + self._batches.held

    def close(self) -> None:
        """Close both accounts, and release the batches. Pages are released by their holders."""
        self.release_batches()
        self.pages.close()
        self._batches.close()
