"""Puts user records on a stream, at least once each: calls in parallel, refused entries again."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from types import TracebackType

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import PutResult, StreamClient
from sparkinesis.stream.calls.retry import THROTTLED, Retry
from sparkinesis.stream.kpl.pack import OutgoingRecord
from sparkinesis.stream.put_entry import PutEntry, aggregated_entries, plain_entries
from sparkinesis.stream.putting.put_queue import MAX_ENTRIES, PutQueue
from sparkinesis.stream.routing import HashRange, ShardMap, hash_key

_log = logging.getLogger(__name__)

CALLS_AT_A_TIME = 4
"""PutRecords calls that one task has under way at most."""

LOW_WATER = MAX_ENTRIES * CALLS_AT_A_TIME
LOW_WATER_SIZE = 8 * 1_048_576
"""With fewer entries, and bytes of them, than this waiting, more records are asked for."""

RETRY = Retry(cap=3.0)
"""A shard's limits are per second: to wait much longer would leave it idle."""

_REFRESHES = 6


@dataclass(frozen=True, slots=True)
class PutPlan:
    """How user records are put.

    ordered: no user record is put before the earlier ones of its partition key are stored. What is
    stored twice repeats in order, so that the first of each are in the order given. Aggregated,
    this is so for user records of one key that go to one shard: explicit hash keys may part them.
    aggregate_size: bytes of an aggregate at most; None puts every user record as it is.
    """

    ordered: bool = False
    aggregate_size: int | None = None


class Putter:
    """Puts the user records of one task. Used by one thread; the calls run on threads of its own.

    As a context manager: it leaves its block when everything is stored, or raises.

    Errors: those of `StreamClient`, and `ServiceError` when the service takes nothing at all for
    ``retry.give_up_after`` seconds, in which the time between two calls of `put` does not count.
    What was put before an error stays put, so that a task that is tried again stores it a second
    time.
    """

    def __init__(
        self,
        address: StreamAddress,
        plan: PutPlan,
        retry: Retry = RETRY,
        on_stored: Callable[[Sequence[OutgoingRecord]], None] = lambda _: None,
    ) -> None:
        """``on_stored`` is told of user records, the objects that were given, once they are stored.

        For plans without aggregates. It is called by the thread that uses the putter.
        """
        self._address = address
        self._plan = plan
        self._retry = retry
        self._on_stored = on_stored
        self._stopped = threading.Event()
        self._client = StreamClient(address, replace(retry, sleep=self._sleep))
        self._threads = ThreadPoolExecutor(CALLS_AT_A_TIME, thread_name_prefix="put")
        self._queue = PutQueue()
        self._calls: dict[Future[list[PutResult]], list[PutEntry]] = {}
        self._shards: ShardMap | None = None
        self._misplaced: list[tuple[PutEntry, str]] = []
        """Entries that landed in another shard than expected, and in which."""
        self._routes_by_hash_key = True
        """The service puts records where their hash keys belong; streams that distribute records
        themselves (RecordDistributionStrategy AUTO) pay no heed to those."""
        self._stale = False
        """Whether an answer has shown that the shards have changed."""
        self._progress_at = self._left_at = retry.clock()
        self._errors: Counter[tuple[str, str]] = Counter()
        """Why entries were refused since the service last took one."""

    def __enter__(self) -> Putter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._stopped.set()  # or a call that is being tried again would go on for minutes
            self._threads.shutdown(cancel_futures=True)

    def put(self, records: Iterable[OutgoingRecord]) -> None:
        """Take user records, checked before; returns when it is worth giving more."""
        self._resume()
        self._queue.add(self._entries(records))
        self._begin_calls()
        while len(self._queue) > LOW_WATER or self._queue.size > LOW_WATER_SIZE:
            self._step()
        self._left_at = self._retry.clock()

    def flush(self) -> None:
        """Return when everything is stored."""
        self._resume()
        while self._queue or self._calls or self._stale:
            self._step()
        self._left_at = self._retry.clock()

    def _resume(self) -> None:
        """Do not count the time for which nobody looked at answers, nor put anything again."""
        self._progress_at += self._retry.clock() - self._left_at

    def _entries(self, records: Iterable[OutgoingRecord]) -> list[PutEntry]:
        size, ordered = self._plan.aggregate_size, self._plan.ordered
        if size is None:
            return plain_entries(records, ordered=ordered)
        if self._shards is None:
            self._shards = self._client.shard_map()
        return aggregated_entries(records, self._shards, size, ordered=ordered)

    def _step(self) -> None:
        """Make the calls that may be made now, then wait until something changes."""
        if self._stale and not self._calls:
            self._reroute()
        self._begin_calls()
        due = None if self._stale else self._queue.next_due()
        room = len(self._calls) < CALLS_AT_A_TIME
        timeout = max(0.0, due - self._retry.clock()) if due is not None and room else None
        if self._calls:
            for call in wait(self._calls, timeout, FIRST_COMPLETED).done:
                self._handle_results(self._calls.pop(call), call.result())
        elif timeout:
            self._retry.sleep(timeout)

    def _begin_calls(self) -> None:
        while not self._stale and len(self._calls) < CALLS_AT_A_TIME:
            entries = self._queue.take(self._retry.clock())
            if not entries:
                break
            self._calls[self._threads.submit(self._client.put_records, entries)] = entries

    def _handle_results(self, entries: Sequence[PutEntry], results: Sequence[PutResult]) -> None:
        refused = []
        for entry, result in zip(entries, results, strict=True):
            if result.error is not None:
                refused.append(entry)
                continue
            landed = result.shard_id
            if self._routes_by_hash_key and entry.shard is not None and landed != entry.shard:
                assert landed is not None
                self._stale = True
                self._misplaced.append((entry, landed))
                if len(entry.members) > 1:
                    continue
            self._queue.accepted(entry)
            self._on_stored(entry.members)
        now = self._retry.clock()
        if len(refused) < len(entries):
            self._progress_at = now
            self._errors.clear()
        if refused:
            self._errors.update((r.error, r.message) for r in results if r.error is not None)
            if now - self._progress_at > self._retry.give_up_after:
                raise self._gave_up(len(refused))
            self._queue.refused(refused, now, self._retry.pause)

    def _gave_up(self, refused: int) -> ServiceError:
        waiting = refused + len(self._queue) + sum(map(len, self._calls.values()))
        (code, message), _ = self._errors.most_common(1)[0]
        counted = Counter(code for code, _ in self._errors.elements())
        said = ", ".join(f"{code} ({count} times)" for code, count in counted.most_common())
        advice = "Try again later; if it persists, ask the service's health page."
        if code in THROTTLED:
            advice = (
                "The shards' limits of 1,000 records and 1 MiB a second are used up: give the "
                "stream more shards, or spread the partition keys, or pack small records with the "
                "option aggregation=true."
            )
        return ServiceError(
            f"PutRecords failed on {self._address}: it took none of the {waiting} records that "
            f"this task has left, over {self._retry.give_up_after:g} seconds of retries: {said}. "
            f"{advice} What was put before stays in the stream. The last message: {message}"
        )

    def _reroute(self) -> None:
        """Pack anew, for the shards that there are now. No call is under way."""
        self._shards = self._refreshed({shard for _, shard in self._misplaced})
        if any(_is_elsewhere(entry, self._shards.ranges.get(at)) for entry, at in self._misplaced):
            self._routes_by_hash_key = False
            _log.warning(
                "The stream %s distributes records itself, whatever their hash keys: aggregates "
                "go to any shard. A KCL drops those that hold a key of another shard: write with "
                "aggregation=false if one reads the stream.",
                self._address,
            )
        again: list[OutgoingRecord] = []
        for entry, landed in self._misplaced if self._routes_by_hash_key else ():
            own = self._shards.ranges.get(landed)
            fits = own is not None and all(hash_key(key, e) in own for key, e, _ in entry.members)
            if len(entry.members) > 1 and not fits:
                # A reader that checks hash ranges (a KCL) drops all of such an aggregate.
                again += entry.members
        # What is put again comes first: nothing behind it in its lane has been put.
        again += [record for entry in self._queue.take_all() for record in entry.members]
        self._misplaced.clear()
        self._stale = False
        self._queue.add(self._entries(again))

    def _refreshed(self, landed: Iterable[str]) -> ShardMap:
        """The shards there are now. ListShards may take a moment to tell of those in ``landed``."""
        found = self._client.shard_map()
        for attempt in range(_REFRESHES):
            if found.ranges.keys() >= set(landed):
                break
            self._sleep(self._retry.pause(attempt))
            found = self._client.shard_map()
        return found

    def _sleep(self, seconds: float) -> None:
        if self._stopped.is_set():
            raise CancelledError
        self._retry.sleep(seconds)


def _is_elsewhere(entry: PutEntry, landed: HashRange | None) -> bool:
    """Whether a record is in a shard that its own hash key does not belong to.

    A shard's hash keys never change, so that is no matter of a reshard.
    """
    return (
        landed is not None and hash_key(entry.partition_key, entry.explicit_hash_key) not in landed
    )
