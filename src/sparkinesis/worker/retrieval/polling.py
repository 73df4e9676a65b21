"""Retrieval by polling: GetRecords calls, within the budget of calls that a shard allows."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import partial

from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import RetryLaterError
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchRequest, RetrievalMode
from sparkinesis.worker.retrieval.memory import (
    LARGEST_RECORD,
    WHOLE_PAGE,
    response_memory,
)

_BYTES_A_SECOND = 1_048_576
_RECORDS_A_SECOND = 1000
"""The most that producers can put into a shard (Kinesis' quotas)."""

_SLACK = 1.0
"""Seconds that may pass between the request for memory and the call."""

_SLOTS = (0.05, 1.0)
"""The least and the most seconds between two instants at which idle shards are polled."""
_SHARDS_OF_A_SLOT = 50.0
"""Shards that are polled at one instant, if the slots permit."""
_SOONEST = 0.25
"""The part of the idle time that passes at least before a slot: a shard that has just been opened
waits for 1.25 times the idle time at most."""

_ROUNDING = 1e-9

_FORGOTTEN_AFTER = 60.0
"""Seconds without a call after which a shard's budget is full again, and need not be kept."""


class Polling(RetrievalMode):
    """Polls each shard within a budget of its own."""

    def __init__(
        self,
        client: StreamClient,
        options: WorkerOptions,
        timing: Timing,
    ) -> None:
        self._client = client
        self._options = options
        self._pace = options.pace
        self._timing = timing
        self._lock = threading.Lock()
        self._budgets: dict[str, ShardBudget] = {}
        self._most_budgets = 0
        """The number of budgets at which budgets of shards that are no longer read are dropped."""

    def open(self, request: FetchRequest) -> FetchAhead:
        source = partial(self.source, request)
        return FetchAhead(request, source, self._options.ahead, self._timing.clock).start()

    def source(self, request: FetchRequest) -> PolledShard:
        """Return the shard's pages."""
        budget = self._budget_of(request.shard_id)
        return PolledShard(
            ShardCursor(
                self._client,
                budget,
                request.shard_id,
                request.start,
                inclusive=request.inclusive,
                retry=self._client.attempts(),
            ),
            max_records=self._options.max_records,
            idle_time=self._options.idle_time,
            clock=self._timing.clock,
            # Of all streams of the worker.
            shards=lambda: request.pool.unfinished,
        )

    def _budget_of(self, shard_id: str) -> ShardBudget:
        """Return the shard's budget, which outlives a retrieval: a restart earns no extra calls."""
        with self._lock:
            if len(self._budgets) >= self._most_budgets:
                self._budgets = {
                    known: budget
                    for known, budget in self._budgets.items()
                    if budget.records.idle_for() < _FORGOTTEN_AFTER
                }
                self._most_budgets = 2 * len(self._budgets) + 64
            new = ShardBudget(self._pace, self._timing.clock, self._timing.sleep)
            return self._budgets.setdefault(shard_id, new)


def _written_in(seconds: float) -> int:
    """Return the memory of all that producers can put into a shard within that time."""
    return response_memory(int(_BYTES_A_SECOND * seconds), int(_RECORDS_A_SECOND * seconds))


# Idle shards that are due at about the same time are polled one after the other, in slots. A call
# each 30 ms finds the process asleep and its caches cold: with slots of 50 ms, a worker of 32 idle
# shards took 16 ms of CPU a second, and 19 to 26 without.
#
# The more shards there are, the narrower are the slots, so that a thousand shards still take turns.
# The shards are those of all streams: when each stream counted its own, a worker of a thousand
# streams polled all of them at the same instant. And a slot divides the idle time: one that did not
# was rounded down, and a worker of 60 to 130 shards polled each up to 1.8 times as often as asked.


def due_after(now: float, idle_time: float, shards: int) -> float:
    """Return the time of an idle shard's next call, by the worker's clock (seconds).

    shards: the number of shards that the worker reads.
    """
    least, most = _SLOTS
    slot = min(most, max(least, _SHARDS_OF_A_SLOT * idle_time / max(1, shards)))
    slot = min(slot, idle_time if idle_time >= most else idle_time / 4)
    due = now + idle_time
    if slot < least:
        return due
    slot = idle_time / math.ceil(idle_time / slot - _ROUNDING)
    sooner = math.floor(due / slot) * slot
    return sooner if sooner - now >= idle_time * _SOONEST else sooner + slot


class PolledShard:
    """The pages of a polled shard, one GetRecords call each. For one thread at a time.

    Behind the tip, calls follow each other as fast as the shard's budget allows. At the tip they
    are ``idle_time`` seconds apart, from slot to slot, also while records trickle in.

    GetRecords limits the number of records, not of bytes. To fit a page into its memory, its
    records are assumed to be as large as those of the previous page, and the first ones very large;
    but at the tip, no more can come than producers have put since the last call.
    """

    is_divisible = True

    def __init__(
        self,
        cursor: ShardCursor,
        *,
        max_records: int,
        idle_time: float,
        clock: Callable[[], float],
        shards: Callable[[], int] = lambda: 1,
    ) -> None:
        """``shards``: returns the number of shards that are polled."""
        self._shards = shards
        self._cursor = cursor
        self._most = max_records
        self._idle_time = idle_time
        self._clock = clock
        self._due = clock()
        self._size = LARGEST_RECORD
        """The average size of the last page's records, in bytes."""
        self._at_tip_since: float | None = None
        """The time of the last call if it reached the tip; None if it did not."""

    @property
    def at_end(self) -> bool:
        return self._cursor.at_end

    @property
    def wanted(self) -> int:
        """The most memory that the next call takes: a whole page's, or less at the tip.

        At the tip, the page has at most what producers can have put since the last call.
        """
        since = self._at_tip_since
        if since is None:
            return self._whole
        return min(self._whole, _written_in(self._clock() - since + _SLACK))

    @property
    def _whole(self) -> int:
        return min(WHOLE_PAGE, self._most * response_memory(self._size, 1))

    def due_in(self, wake: Callable[[], None]) -> float:
        del wake
        return max(self._due - self._clock(), self._cursor.due_in())

    def fetch(self, room: int) -> Fetched | None:
        limit = self._most
        if room < self._whole and not self._holds_what_came(room):
            limit = min(limit, max(1, room // response_memory(self._size, 1)))
        try:
            fetched = self._cursor.fetch(limit)
        except RetryLaterError as later:
            self._due = self._clock() + later.seconds
            return None
        records = fetched.page.records
        if records:
            self._size = max(1, fetched.size // len(records))
        self._at_tip_since = None
        if not fetched.page.millis_behind_latest and len(records) < limit:
            self._at_tip_since = self._clock()
            self._due = due_after(self._at_tip_since, self._idle_time, self._shards())
        return fetched

    def _holds_what_came(self, room: int) -> bool:
        """Return True if the memory is enough for all that producers can have put since the tip."""
        since = self._at_tip_since
        return since is not None and room >= _written_in(self._clock() - since)

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        self._at_tip_since, self._due = None, self._clock()
        return self._cursor.keep(fetched, count)

    def stop(self) -> None:
        """Does nothing: a call in progress is not interrupted."""
