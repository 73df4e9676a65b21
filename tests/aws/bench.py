"""What the probes call: puts and reads within the shard's limits, until the time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparkinesis.stream.calls.caller import call_client
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import TRIM_HORIZON, Position
from sparkinesis.stream.put_entry import PutEntry, plain_entries
from sparkinesis.stream.reading.budget import CallBudget, Pace
from sparkinesis.stream.shard import Shard
from tests.aws.resources import Resources
from tests.aws.spending import Allowance, Use
from tests.aws.target import Target

PACE = Pace(calls_per_second=4.0)
"""Below the service's limit of five calls a second."""
_MOST_AT_ONCE = 500


class OutOfTimeError(Exception):
    """The time limit of the run has been reached."""


class TimeLimit:
    """The end of the run, which keeps its cost within the bound. ``clock`` is monotonic."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._began = clock()

    @property
    def spent(self) -> float:
        return self._clock() - self._began

    def check(self) -> None:
        """Raise `OutOfTimeError` if the limit has been reached."""
        if self.spent >= self.seconds:
            raise OutOfTimeError(f"the time limit of {self.seconds / 60:g} minutes was reached")

    def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the limit. Raises `OutOfTimeError`."""
        self._sleep(max(0.0, min(seconds, self.seconds - self.spent)))
        self.check()


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a reader sees it."""

    sequence_number: str
    arrived_ms: int
    data: bytes

    @property
    def number(self) -> int:
        return int(self.sequence_number)


class Bench:
    """The check's hands in one run. Calls raise `OutOfTimeError`, and `StreamClient`'s errors."""

    def __init__(
        self,
        target: Target,
        resources: Resources,
        allowance: Allowance,
        limit: TimeLimit,
        note: Callable[[str], None],
        *,
        pace: Pace = PACE,
    ) -> None:
        self.target = target
        self.resources = resources
        self.allowance = allowance
        self.limit = limit
        self.note = note
        self._pace = pace
        self._budgets: dict[tuple[str, str, str], CallBudget] = {}

    def stream(self, name: str) -> BenchStream:
        return BenchStream(self, name)

    def budget(self, stream: str, shard_id: str, operation: str) -> CallBudget:
        key = (stream, shard_id, operation)
        return self._budgets.setdefault(key, CallBudget(self._pace))


class BenchStream:
    """The calls on one of the run's streams."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.name = name
        self.client: StreamClient = bench.target.stream(name)
        self._bench = bench

    def open_shards(self) -> list[Shard]:
        """Return the open shards, by hash key."""
        shards, _ = self.list_shards()
        listed = [shard for shard in shards if shard.is_open]
        return sorted(listed, key=lambda shard: shard.hash_range or (0, 0))

    def list_shards(self) -> tuple[list[Shard], int]:
        self._bench.limit.check()
        return self.client.list_shards()

    def put(self, shard: Shard, *data: bytes) -> None:
        """Put records into a shard by its hash keys; each call is counted before it is made."""
        self.put_each([(shard, one) for one in data])

    def put_each(self, records: Sequence[tuple[Shard, bytes]]) -> None:
        """Put records into shards, at most 500, in one call or in as many as it takes."""
        entries: list[PutEntry] = plain_entries(
            [("check", str((shard.hash_range or (0, 0))[0]), data) for shard, data in records],
            ordered=False,
        )
        while entries:
            self._bench.limit.check()
            sent, entries = entries[:_MOST_AT_ONCE], entries[_MOST_AT_ONCE:]
            self._bench.allowance.take(Use(puts=len(sent)))
            results = self.client.put_records(sent)
            refused = [
                entry
                for entry, result in zip(sent, results, strict=True)
                if result.shard_id is None
            ]
            if refused:
                self._bench.limit.sleep(0.5)
            entries = refused + entries

    def iterator(self, shard_id: str, position: Position, *, inclusive: bool = False) -> str:
        self._bench.limit.check()
        budget = self._bench.budget(self.name, shard_id, "GetShardIterator")
        return self.client.shard_iterator(shard_id, position, inclusive=inclusive, budget=budget)

    def page(self, shard_id: str, iterator: str, limit: int = 10_000) -> Fetched:
        self._bench.limit.check()
        budget = self._bench.budget(self.name, shard_id, "GetRecords")
        return self.client.get_records(shard_id, iterator, limit, budget)

    def answer(self, shard_id: str, method: str, iterator: str) -> dict[str, Any]:
        """Return what a method of the process's client for GetRecords returns."""
        self._bench.limit.check()
        with self._bench.budget(self.name, shard_id, "GetRecords"):
            ask = getattr(call_client(self.client.address), method)
            answer: dict[str, Any] = ask(ShardIterator=iterator, Limit=10_000)
            return answer

    def first(
        self, shard_id: str, position: Position, *, inclusive: bool = False, pages: int = 8
    ) -> Stored | None:
        """Return the first record of a read from ``position``; None if there is none there."""
        iterator: str | None = self.iterator(shard_id, position, inclusive=inclusive)
        for _ in range(pages):
            if iterator is None:
                break
            page = self.page(shard_id, iterator, 1).page
            if page.records:
                return stored_of(page.records[:1])[0]
            iterator = page.next_shard_iterator
        return None

    def read(self, shard_id: str, count: int, position: Position = TRIM_HORIZON) -> list[Stored]:
        """Read until ``count`` records are there, or the shard ends; in the order of delivery."""
        found: list[Stored] = []
        iterator: str | None = self.iterator(shard_id, position)
        while iterator is not None and len(found) < count:
            page = self.page(shard_id, iterator).page
            found += stored_of(page.records)
            iterator = page.next_shard_iterator
        return found


def stored_of(records: Sequence[Record]) -> list[Stored]:
    """Return the parts of a page's records that the probes compare."""
    return [
        Stored(record.sequence_number, record.arrived_ms or 0, record.data) for record in records
    ]
