"""Tells the end of a shard from an answer that only lacks the iterator of the next page.

Kinesis leaves NextShardIterator out of a closed shard's last page, and names the child shards
there. Some servers name no children; and a proxy or a server may lose the iterator of a shard that
is open. ListShards tells these two apart, unless the listing is from before the end. A second
GetRecords tells whether one answer was odd.
"""

from __future__ import annotations

import logging
import math

from sparkinesis.errors import AccessDeniedError
from sparkinesis.stream.calls.client import Fetched, StreamClient
from sparkinesis.stream.calls.retry import Retries
from sparkinesis.stream.position import AfterRecord, Position, sequence_order
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL, ShardBudget

_log = logging.getLogger(__name__)

_OPEN_FOR_MS = 2_000
"""A shard that was listed as open is taken to be open for so long: each of a server's answers may
lack the iterator."""


class EndCheck:
    """Checks the ends of one shard for a reader. For one thread at a time."""

    def __init__(
        self,
        client: StreamClient,
        shard_id: str,
        retry: Retries | None = None,
        budget: ShardBudget | None = None,
    ) -> None:
        """``retry``: makes the calls; None: as the client does.

        budget: a shard that is listed as open, but ends for GetRecords twice, has ended; a second
        call is made within the budget. None: such a shard is open, for a reader that asks again and
        again anyway.
        """
        self._client = client
        self._shard_id = shard_id
        self._retry = retry
        self._budget = budget
        self._open_until_ms = -math.inf
        self._has_warned = False

    def is_end(self, fetched: Fetched, reached: Position) -> bool:
        """Return True if a GetRecords answer is its shard's last page.

        reached: the position behind the page. Calls ListShards if the page has no iterator and
        names no children; raises the errors of `StreamClient`.
        """
        page = fetched.page
        if page.next_shard_iterator is not None:
            return False
        if page.child_shards:
            return True
        if fetched.service_time_ms >= self._open_until_ms:
            if not self._is_open() or (self._budget and self._ends_again(reached, self._budget)):
                return True
            self._open_until_ms = fetched.service_time_ms + _OPEN_FOR_MS
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "GetRecords returned no NextShardIterator for shard %s of %s, as at the end of a "
                "closed shard, but ListShards shows the shard as open. Reading goes on at %s. "
                "Kinesis does not do this: if you use a proxy or your own endpoint, check that it "
                "does not change the service's answers.",
                self._shard_id,
                self._client.address,
                reached,
            )
        return False

    def _ends_again(self, reached: Position, budget: ShardBudget) -> bool:
        """Return True if another answer has no record behind ``reached`` and no iterator either."""
        iterator = self._client.shard_iterator(
            self._shard_id, reached, budget=budget.iterators, retry=self._retry
        )
        page = self._client.get_records(
            self._shard_id,
            iterator,
            MAX_RECORDS_PER_CALL,
            budget=budget.records,
            retry=self._retry,
        ).page
        if page.next_shard_iterator is not None or not page.records:
            return page.next_shard_iterator is None
        # Some servers begin too early.
        last = sequence_order(page.records[-1].sequence_number)
        return isinstance(reached, AfterRecord) and last <= sequence_order(reached.sequence_number)

    def _is_open(self) -> bool:
        try:
            shards, _ = self._client.list_shards(self._retry)
        except AccessDeniedError as error:
            _log.info(
                "Cannot check whether shard %s of %s has ended; it is taken to have: %s",
                self._shard_id,
                self._client.address,
                error,
            )
            return False
        return any(shard.id == self._shard_id and shard.is_open for shard in shards)
