"""The memory of one shard: pages that are fetched ahead, and the batch that is processed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkinesis.stream.kpl.objects import estimate_unpacked
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.split_page import split_page
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
        """Counts the batch that the record processor is given, as columns and as objects."""
        self._small = budget.limit // 64
        """Bytes. A smaller batch is reserved by its largest possible size: an estimate would have
        to look at each record."""
        self._batch: Hold | None = None
        self._deaggregates = deaggregate
        self._expansion = FIRST_EXPANSION if deaggregate else WITHOUT_UNPACKING

    def split(self, page: FetchedPage) -> tuple[FetchedPage, FetchedPage | None]:
        """Reserve memory for a page's batch; return the part that fits, and the rest of the page.

        The first part has one record at least. The memory of the batch before is released. Records
        take less memory in a page than in a batch, so the rest waits as a page.
        """
        self.release_batch()
        records = page.records
        if not records:
            return page, None
        size = largest_batch_memory(page.fetched, self._expansion)
        if size > self._small:
            size = estimate_batch_memory(page.fetched, self._expansion)
        self._batch = self._batches.ask(size, 1)
        room = self._batch.size  # decided: an account that holds nothing gets its floor at once
        if room >= size:
            return page, None
        count = batch_records_within(records, room, self._expansion)
        if count == len(records):
            return page, None
        head, rest = split_page(page.fetched, count)
        return replace(page, fetched=head, at_shard_end=False), replace(page, fetched=rest)

    def measure_batch(self, records: Sequence[Record]) -> None:
        """Correct the reservation to the batch's size, and use that for the next estimate."""
        unpacked = estimate_unpacked(records) if self._deaggregates else None
        memory = batch_memory(records, unpacked)
        if self._batch is not None:
            self._batch.force(memory)
        if unpacked is not None and unpacked.rows > len(records):
            self._expansion = measure_expansion(records, memory)

    def release_batch(self) -> None:
        """Give the batch's memory back: the batch was processed, or is not delivered."""
        if self._batch is not None:
            self._batch.release()
            self._batch = None

    @property
    def held(self) -> int:
        """The bytes that both accounts hold now. For any thread."""
        return self.pages.held + self._batches.held

    def close(self) -> None:
        """Close both accounts, and release the batch. Pages are released by their holders."""
        self.release_batch()
        self.pages.close()
        self._batches.close()
