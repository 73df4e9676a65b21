"""The memory of one shard: pages that are fetched ahead, and the batch that is processed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.split_page import split_page
from sparkinesis.worker.batch import RecordBatch
from sparkinesis.worker.retrieval.ahead import FetchedPage
from sparkinesis.worker.retrieval.memory import Hold, MemoryBudget
from sparkinesis.worker.retrieval.memory_estimates import (
    FIRST_EXPANSION,
    WITHOUT_UNPACKING,
    batch_records_within,
    estimate_batch_memory,
    largest_batch_memory,
    measure_expansion,
)


class ShardAccounts:
    """Two accounts of a budget; used by one thread, that of the shard's consumer."""

    def __init__(self, budget: MemoryBudget, *, deaggregate: bool = True) -> None:
        self.ahead = budget.account()
        """That of pages."""
        self._at_hand = budget.account()
        """That of the batch which the record processor is given, in both of its forms."""
        self._small = budget.limit // 64
        """Bytes that are held for a moment without a look at each record, which takes longer."""
        self._batch: Hold | None = None
        self._expansion = FIRST_EXPANSION if deaggregate else WITHOUT_UNPACKING

    def admit(self, page: FetchedPage) -> tuple[FetchedPage, FetchedPage | None]:
        """As much of a page as its batch may take memory for, one record at least; and the rest.

        The memory of the batch before is given back. Records in a page take less than their batch,
        so the rest is better left as it is until its turn.
        """
        self.done()
        records = page.fetched.page.records
        if not records:
            return page, None
        size = largest_batch_memory(page.fetched, self._expansion)
        if size > self._small:
            size = estimate_batch_memory(page.fetched, self._expansion)
        self._batch = self._at_hand.ask(size, 1)
        room = self._batch.wait()
        if room >= size:
            return page, None
        count = batch_records_within(records, room, self._expansion)
        if count == len(records):
            return page, None
        head, rest = split_page(page.fetched, count)
        return replace(page, fetched=head, at_shard_end=False), replace(page, fetched=rest)

    def unpacked(self, records: Sequence[Record], batch: RecordBatch) -> None:
        """The batch is made: now it is known what it takes, and what the next one will."""
        if self._batch is not None:
            self._batch.force(batch.memory)
        if len(batch) > len(records):
            self._expansion = measure_expansion(records, batch.memory)

    def done(self) -> None:
        """The record processor is done with its batch, or will not be given it any more."""
        if self._batch is not None:
            self._batch.release()
            self._batch = None

    def close(self) -> None:
        """Give all back but the pages, whose holders do; ask for nothing more."""
        self.done()
        self.ahead.close()
        self._at_hand.close()
