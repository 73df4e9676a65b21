"""Retrieval by GetRecords."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sparkinesis.stream.budget import Pace, ShardBudget
from sparkinesis.stream.client import Fetched, StreamClient
from sparkinesis.stream.cursor import ShardCursor
from sparkinesis.stream.position import Position
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.retrieval import FetchAhead

_PACE = Pace(calls_per_second=4.0)
"""Of the five GetRecords calls that a shard takes a second, one is left for others."""

_FORGOTTEN_AFTER = 60.0
"""Seconds: who has not called a shard for so long has all of its budget."""


class Polling:
    """Polls each shard within a budget of its own. Nothing has to be prepared for that."""

    def __init__(
        self,
        application: str,
        client: StreamClient,
        options: WorkerOptions,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._application = application
        self._client = client
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._budgets: dict[str, ShardBudget] = {}
        self._most_budgets = 0
        """As soon as there are so many, those of shards that are not read any more go."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        del wait

    def open(
        self, shard_id: str, start: Position, on_page: Callable[[], None], *, inclusive: bool
    ) -> FetchAhead:
        return FetchAhead(
            lambda: self.source(shard_id, start, inclusive=inclusive),
            on_page=on_page,
            name=f"{self._application}-{shard_id}-fetch",
            clock=self._clock,
        ).start()

    def source(self, shard_id: str, start: Position, *, inclusive: bool) -> PolledShard:
        """What follows ``start``, or begins AT its record."""
        budget = self._budget_of(shard_id)
        return PolledShard(
            ShardCursor(self._client, budget, shard_id, start, inclusive=inclusive),
            max_records=self._options.max_records,
            idle_time=self._options.idle_time,
            clock=self._clock,
        )

    def _budget_of(self, shard_id: str) -> ShardBudget:
        """A shard's only one: who begins anew to read it has no more calls for that."""
        with self._lock:
            if len(self._budgets) >= self._most_budgets:
                self._budgets = {
                    known: budget
                    for known, budget in self._budgets.items()
                    if budget.records.idle_for() < _FORGOTTEN_AFTER
                }
                self._most_budgets = 2 * len(self._budgets) + 64
            new = ShardBudget(_PACE, self._clock, self._sleep)
            return self._budgets.setdefault(shard_id, new)

    def finish(self, is_last: Callable[[], bool]) -> None:
        del is_last


class PolledShard:
    """A shard's pages, one GetRecords call each; used by one thread, but for `stop`.

    No wait between calls while the shard has more to give than was fetched, beyond what its budget
    asks for; ``idle_time`` seconds at the tip, also if records trickle in there.
    """

    def __init__(
        self,
        cursor: ShardCursor,
        *,
        max_records: int,
        idle_time: float,
        clock: Callable[[], float],
    ) -> None:
        self._cursor = cursor
        self._limit = max_records
        self._idle_time = idle_time
        self._clock = clock
        self._due = clock()
        self._stopped = threading.Event()

    @property
    def at_end(self) -> bool:
        return self._cursor.at_end

    def fetch(self) -> Fetched | None:
        if self._stopped.wait(max(0.0, self._due - self._clock())):
            return None
        fetched = self._cursor.fetch(self._limit)
        if not fetched.page.millis_behind_latest and len(fetched.page.records) < self._limit:
            self._due = self._clock() + self._idle_time
        return fetched

    def stop(self) -> None:
        self._stopped.set()
