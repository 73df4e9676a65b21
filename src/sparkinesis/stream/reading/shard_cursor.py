"""A cursor that reads a shard with GetRecords, and renews its iterator."""

from __future__ import annotations

import logging

from sparkinesis.errors import ExpiredIteratorError, ServiceError
from sparkinesis.stream.calls.caller import SentCall
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Attempts, Retries, RetryLaterError
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Page, split_page
from sparkinesis.stream.position import AfterRecord, Position
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.shard_end import EndCheck

_log = logging.getLogger(__name__)


# An iterator lives for five minutes, and a reader may take longer between two pages: a processor
# that hangs, a machine that sleeps. What the cursor knows is therefore a position, and an iterator
# is only its short form, which is thrown away as soon as it fails.
#
# - An expired iterator is replaced by one AFTER the last record, so nothing is skipped or repeated.
#   The filter of early records stays, for servers that begin sooner than asked.
# - What was kept at the position may have expired in the meantime. The next page then begins with
#   the oldest record, and shows no gap. A planner that had stood still for longer than the stream
#   keeps records once stored an offset as if nothing had ever arrived. So ``renews=False`` raises
#   the error instead, and such a reader begins again with a check of its start; the others check by
#   the time that has passed (`ReadProgress.may_have_missed`).
# - A new iterator that has expired already is the fault of the server, whose clock may be wrong:
#   asking for the next one at once would go on for ever. It counts as a failed call, with its
#   pauses and its end. The count ends with the first page, not with the next iterator.
class ShardCursor:
    """Fetches a shard's pages in order. For one thread at a time.

    inclusive: starts AT the record of an `AfterRecord` position, so that the caller sees whether
    that record still exists; the caller drops it. renews: replaces an expired iterator; otherwise
    `fetch` raises `ExpiredIteratorError`. retry: makes the calls; None: as the client does.
    asks_twice: a shard that ends twice for GetRecords has ended, though it is listed as open.
    """

    def __init__(
        self,
        client: StreamClient,
        budget: ShardBudget,
        shard_id: str,
        position: Position,
        *,
        inclusive: bool = False,
        renews: bool = True,
        retry: Retries | None = None,
        asks_twice: bool = False,
    ) -> None:
        self.shard_id = shard_id
        self.at_end = False
        """True once the shard is closed and all its records have been fetched."""
        self.renews = renews
        """True if an expired iterator is replaced; otherwise `fetch` raises."""
        self._client = client
        self._budget = budget
        self._retry = retry
        self._renewals = client.attempts()
        """The iterators that had expired when they were new."""
        self._position = position
        self._inclusive = inclusive
        self._iterator: str | None = None
        self._sent: SentCall | None = None
        self._ends = EndCheck(client, shard_id, retry, budget if asks_twice else None)
        self._early_filter = EarlyRecordFilter(
            client.address, shard_id, position, inclusive=inclusive
        )

    def due_in(self) -> float:
        """Return the seconds until the shard's budget permits the next call."""
        budget = self._budget
        return (budget.iterators if self._iterator is None else budget.records).due_in()

    def send_ahead(self, limit: int) -> bool:
        """Send the request of the next `fetch`, with this limit, now; False if that cannot be.

        Before that, the answer may be awaited by `receive`, or given up by `forget_sent`.
        """
        if self._iterator is not None:
            self._sent = self._client.send_get_records(self.shard_id, self._iterator, limit)
        return self._sent is not None

    def receive(self) -> int:
        """Wait for the answer to `send_ahead`; return its bytes, 0 if `fetch` makes no other call.

        That is so for an open shard at its tip without a record.
        """
        answer = None if self._sent is None else self._sent.wait()
        if answer is None:
            return 1
        page: Page = answer["Page"]
        is_idle = not page.records and page.next_shard_iterator and not page.millis_behind_latest
        return 0 if is_idle else max(1, answer["Size"])

    def forget_sent(self) -> None:
        """Let the next `fetch` make its call as usual."""
        self._sent = None

    def fetch(self, limit: int = MAX_RECORDS_PER_CALL) -> Fetched:
        """Wait for the shard's budget, and return the next page. Do not call this `at_end`.

        A new iterator that has expired is replaced after a pause, as long as a call is retried;
        then `ServiceError` is raised.
        """
        while True:
            is_new = self._iterator is None
            sent, self._sent = self._sent, None
            if self._iterator is None:
                self._iterator = self._client.shard_iterator(
                    self.shard_id,
                    self._position,
                    inclusive=self._inclusive,
                    budget=self._budget.iterators,
                    retry=self._retry,
                )
            try:
                fetched = self._client.get_records(
                    self.shard_id,
                    self._iterator,
                    limit,
                    budget=self._budget.records,
                    retry=self._retry,
                    sent=sent,
                )
            except ExpiredIteratorError as error:
                if not (self.renews or is_new):
                    raise
                self._iterator = None
                if is_new:
                    self._renew_later(error)
                continue
            except ServiceError as error:
                raise ServiceError(
                    f"{error} Shard {self.shard_id} of {self._client.address} was being read at "
                    f"position {self._position}, where a retry begins."
                ) from None
            break
        self._renewals.succeed()
        page, reached = fetched.page, self._position
        if page.records:
            reached = AfterRecord(page.records[-1].sequence_number)
            self._budget.records.spend(fetched.size)
        self.at_end = self._ends.is_end(fetched, reached)
        self._iterator = page.next_shard_iterator
        self._position = reached
        self._inclusive = self._inclusive and not page.records
        return self._early_filter.apply(fetched)

    def _renew_later(self, error: ExpiredIteratorError) -> None:
        """Wait, or raise `RetryLaterError`, before the next iterator is asked for."""
        shard = f"shard {self.shard_id} of {self._client.address}"
        pause = self._renewals.next_pause()
        if pause is None:
            self._renewals.succeed()
            raise ServiceError(
                f"GetRecords says of each new iterator of {shard} that it has expired; every retry "
                f"was used up. Check the clock of the server that answers there. {error}"
            ) from None
        if self._renewals.failures == 1:
            _log.warning(
                "GetRecords says of a new iterator of %s that it has expired. Asking for others.",
                shard,
            )
        if isinstance(self._retry, Attempts):
            raise RetryLaterError(pause) from error
        self._client.wait(pause)

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        """Return the first ``count`` records of the last page; fetch the others again."""
        if count >= len(fetched.page.records):
            return fetched
        kept, _ = split_page(fetched, count)
        last = kept.page.records[-1].sequence_number
        self._position = AfterRecord(last)
        self._early_filter.rewind(last)
        self._iterator = None
        self.at_end = False
        return kept
