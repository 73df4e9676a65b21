"""The end of a shard: answers that look like it, and ends that never come."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Collection, Mapping

from sparkinesis.errors import AccessDeniedError, ServiceError, SparkinesisError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retries
from sparkinesis.stream.calls.shared_calls import MIN_INTERVAL, ShardListing
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Page, is_empty_at_tip
from sparkinesis.stream.position import AfterRecord, Position, sequence_order
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.early_records import EarlyRecordFilter

_log = logging.getLogger(__name__)

_OPEN_FOR_MS = 2_000
"""A shard that was listed as open is taken to be open for so long: each of a server's answers may
lack the iterator."""


# Kinesis leaves NextShardIterator out of a closed shard's last page, and names the child shards
# there. Such an answer must be believed at once, because a query or a worker finishes the shard by
# it; a wrong one must not be believed at all, because nobody reads on then. One answer without an
# iterator, as of a proxy or an emulator, once ended `sparkinesis tail` with the exit code 0, and
# left a worker with the lease of a shard that it read no further.
#
# - An answer that names children is believed. Some servers name none, though.
# - Otherwise ListShards decides, if its listing is from after the end: on Kinesis, too, it may be
#   from before for seconds. A reader that asks again anyway just reads on (``budget`` is None); a
#   planner decides now, and so asks GetRecords again: two such answers are the end.
# - A server may leave the iterator out of every answer of a shard. A shard that is listed as open
#   is therefore taken to be open for `_OPEN_FOR_MS`: a listing for each page would be too many.
# - Without the permission for ListShards, the answer is believed.
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


_MOST_EMPTY_PAGES = 10
"""The most empty pages to read past when GetRecords is asked whether a shard has ended."""
_BETWEEN_PAGES = 0.5
"""Seconds between two of these calls: a shard accepts five a second, retries included."""


class RestOfShard:
    """The records that follow the last event of a subscription, if the shard ends with them.

    The last event of a closed shard names its children. Some servers do not name them, so that it
    looks like any other event, and each subscription behind it ends at once. For one thread.
    """

    def __init__(self, client: StreamClient, shard_id: str, sleep: Callable[[float], None]) -> None:
        self._client = client
        self._shard_id = shard_id
        self._sleep = sleep
        self._ends = EndCheck(client, shard_id)
        self.may_be_nothing = False
        """True if the last event may have been the shard's last one, without saying so."""

    def last_page(
        self,
        position: Position,
        early_filter: EarlyRecordFilter,
        is_stopped: Callable[[], bool],
        *,
        inclusive: bool,
    ) -> Fetched | None:
        """Return the records from ``position`` to the end of the shard; None if it does not end.

        GetRecords returns a next iterator if the shard continues, or if the end comes on a later
        page: after empty ones, or after records from before the position, which other servers
        return. An answer without one is checked (`EndCheck`). If the call is not permitted, the
        shard is assumed to continue.
        """
        early_filter = copy.copy(early_filter)  # a page that is not the last is not returned
        try:
            iterator: str | None = self._client.shard_iterator(
                self._shard_id, position, inclusive=inclusive
            )
            for _ in range(_MOST_EMPTY_PAGES):
                assert iterator is not None
                found = self._client.get_records(self._shard_id, iterator, MAX_RECORDS_PER_CALL)
                iterator = found.page.next_shard_iterator
                fetched = early_filter.apply(found)
                is_over = iterator is None or fetched.page.records or is_empty_at_tip(found.page)
                if is_over or is_stopped():
                    break
                self._sleep(_BETWEEN_PAGES)
        except AccessDeniedError as error:
            _log.info(
                "Cannot check whether shard %s of %s has ended: %s",
                self._shard_id,
                self._client.address,
                error,
            )
            return None
        return fetched if self._ends.is_end(found, position) else None


# Kinesis ends a closed shard. Some servers (moto) return empty pages for ever instead, so that a
# reader cannot know whether it has read all records.
WARN_AFTER = 60.0
"""Seconds at the tip of a closed shard after which a warning is logged."""

FAIL_AFTER = 600.0
"""Seconds at the tip after which a read up to the shard's end fails."""


class TimeAtTip:
    """The time that a reader has spent at the tip of its shard without a record."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic, in seconds."""
        self._clock = clock
        self.since: float | None = None
        """The instant of the first empty page at the tip; None if the reader is not at the tip."""

    def observe(self, page: Page, *, at_end: bool) -> None:
        """Count a page. ``at_end``: the shard ends with this page."""
        if at_end or not is_empty_at_tip(page):
            self.since = None
        elif self.since is None:
            self.since = self._clock()

    @property
    def seconds(self) -> float:
        return 0.0 if self.since is None else self._clock() - self.since


class MissingEndWatch:
    """Watches a read up to the end of a shard that ListShards shows as closed.

    Logs a warning after a minute at the tip, and raises `ServiceError` after ten.
    """

    def __init__(self, address: StreamAddress, shard_id: str, clock: Callable[[], float]) -> None:
        self._address = address
        self._shard_id = shard_id
        self._tip = TimeAtTip(clock)
        self._has_warned = False

    def observe(self, page: Page, reached: Position, *, at_end: bool) -> None:
        """Count a page, after which the reader is at ``reached``. Raises `ServiceError`."""
        self._tip.observe(page, at_end=at_end)
        if self._tip.seconds >= FAIL_AFTER:
            raise ServiceError(
                f"Shard {self._shard_id} of {self._address} does not end: ListShards shows "
                "the shard as closed, but GetRecords has returned empty pages with a "
                f"NextShardIterator for {self._tip.seconds:.0f} seconds, at {reached}. So it is "
                "unknown whether all records were read. Kinesis ends a closed shard; this server "
                "does not (moto does not). Read up to a sequence number, with the option "
                f'endingPosition = {{"{self._shard_id}": "<sequence number>"}}, or use a server '
                "that ends shards, such as `sparkinesis local`."
            )
        if self._tip.seconds >= WARN_AFTER and not self._has_warned:
            self._has_warned = True
            warn_missing_end(
                self._address,
                self._shard_id,
                f"After {FAIL_AFTER / 60:.0f} minutes the read fails.",
            )


class EndlessShards:
    """Warns of each closed shard of a query that does not end, once. Owned by one thread."""

    def __init__(self, address: StreamAddress) -> None:
        self._address = address
        self._since: dict[str, float] = {}

    def observe(self, shard_ids: Collection[str], now: float) -> None:
        """Note the closed shards that have neither a record nor an end now.

        now: monotonic, in seconds.
        """
        self._since = {shard_id: self._since.get(shard_id, now) for shard_id in shard_ids}
        for shard_id, since in self._since.items():
            if now - since >= WARN_AFTER:
                self._since[shard_id] = float("inf")  # once is enough
                warn_missing_end(
                    self._address,
                    shard_id,
                    "Its child shards are not read until the server reports its end.",
                )


def warn_missing_end(address: StreamAddress, shard_id: str, what_follows: str) -> None:
    """Log a warning about a closed shard that does not end."""
    _log.warning(
        "Shard %s of %s does not end: ListShards shows the shard as closed, but GetRecords has "
        "returned empty pages with a NextShardIterator for a minute. Kinesis ends a closed shard; "
        "this server does not (moto does not). %s",
        shard_id,
        address,
        what_follows,
    )


CHECK_AGAIN = 300.0
"""Seconds between two calls of ListShards while shards are at their tips."""

_NEVER = float("inf")


class ClosedShards:
    """Warns once of each closed shard that stays at its tip. For one thread.

    Kinesis ends closed shards, so with AWS's endpoint nothing is called. Behind an endpoint of the
    user's own there may be another server: ListShards is called, once for all shards.
    """

    def __init__(
        self, client: StreamClient, clock: Callable[[], float], phase: float = 0.0
    ) -> None:
        """``phase``: from 0 to 1; puts off the first call by this part of the pause.

        So the calls for many streams do not come at the same time.
        """
        self._first = WARN_AFTER + phase * CHECK_AGAIN
        self._client = client
        self._clock = clock
        self._listing = ShardListing(client, clock)
        self._checked_at: dict[str, float] = {}
        self._warned: set[str] = set()

    def check(self, tips: Mapping[str, float]) -> float:
        """Check the shards that are due; return the seconds until the next check.

        tips: shards whose readers are at the tip, with the time since then (by the clock).
        """
        self._checked_at = {shard: at for shard, at in self._checked_at.items() if shard in tips}
        self._warned &= tips.keys()
        if self._client.address.endpoint is None:
            return _NEVER
        due = {
            shard: self._due(shard, at) for shard, at in tips.items() if shard not in self._warned
        }
        now = self._clock()
        if min(due.values(), default=_NEVER) > now:
            return min(due.values(), default=_NEVER) - now
        try:
            shards = self._listing.listed_since(now - WARN_AFTER / 2)
        except SparkinesisError as error:
            _log.info("Listing shards to find closed ones failed and will be retried: %s", error)
            return WARN_AFTER
        if shards is None:
            return MIN_INTERVAL
        closed = {shard.id for shard in shards if not shard.is_open}
        for shard_id, at in due.items():
            if shard_id not in closed:
                self._checked_at[shard_id] = now
            elif at <= now:
                self._warned.add(shard_id)
                warn_missing_end(
                    self._client.address,
                    shard_id,
                    "Its child shards are not read until the server reports its end.",
                )
        return min((self._due(s, tips[s]) for s in due.keys() - self._warned), default=_NEVER) - now

    def _due(self, shard_id: str, since: float) -> float:
        checked_at = self._checked_at.get(shard_id)
        return since + self._first if checked_at is None else checked_at + CHECK_AGAIN
