"""Puts user records on a stream, each at least once, with parallel calls and retries."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import THROTTLED, Backoff
from sparkinesis.stream.put_entry import (
    MAX_ENTRIES,
    PutEntry,
    PutQueue,
    PutResult,
    aggregated_entries,
    plain_entries,
)
from sparkinesis.stream.shard import Shard, ShardMap, hash_key

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.pack import OutgoingRecord

_log = logging.getLogger(__name__)

CALLS_AT_A_TIME = 4
"""The most simultaneous PutRecords calls of one task."""

LOW_WATER = MAX_ENTRIES * CALLS_AT_A_TIME
LOW_WATER_SIZE = 8 * 1_048_576
"""`put` returns for more records once the waiting entries and bytes are not above these."""

RETRY = Backoff(cap=3.0)
"""The backoff for refused entries. A shard's limits are per second, so a longer cap would leave it
idle."""

_REFRESHES = 6
"""How often the shards are listed again, for a shard that is not listed yet."""


# PutRecords accepts one entry of a call and refuses its neighbour: it guarantees no order, even
# within a call. What has to hold nevertheless:
#
# - Each record is stored at least once: entries are put again until they are accepted, or all of
#   the task fails. A call whose answer is lost is made again whole, which stores some twice.
# - If order matters, a record never overtakes an earlier one of its lane (a partition key, or a
#   shard of aggregates). So a call holds at most one entry of a lane, although it has room for
#   others: of two, the service might refuse just the first one. The next one is free once that one
#   is accepted (`PutQueue`).
# - A reader that checks hash ranges, such as a KCL, drops an aggregate that holds a record of
#   another shard. A reshard shows when an aggregate lands elsewhere. No call is begun then, those
#   that run are waited for, and what is left is packed again for the present shards (`_Routing`).
#   On a stream that distributes records itself, that would go on for ever: there, an aggregate
#   lands in a shard that does not own its hash key, and hash keys are no longer looked at.
# - The task fails once nothing at all was accepted for minutes. Time between two calls of `put` is
#   not counted: a task whose rows came slowly gave up after one refusal, when the next rows came
#   more than five minutes later.
class Putter:
    """Puts the user records of one task. For one thread; the calls run on the putter's own threads.

    As a context manager, it leaves its block once all records are stored, or raises.

    Raises the errors of `StreamClient`, and `ServiceError` if the service accepts nothing for
    ``retry.give_up_after`` seconds; time between two calls of `put` does not count. Records that
    were put before an error remain in the stream, so a retried task stores them again.
    """

    def __init__(
        self,
        address: StreamAddress,
        retry: Backoff = RETRY,
        on_stored: Callable[[Sequence[OutgoingRecord]], None] = lambda _: None,
        *,
        ordered: bool = False,
        aggregate_size: int | None = None,
    ) -> None:
        """Make a putter.

        ordered: puts a user record only after the earlier ones of its partition key are stored.
        Duplicates repeat in order, so that the first copies are in the given order. With
        aggregation this holds for user records of one key in one shard: explicit hash keys may
        separate them.
        aggregate_size: the most bytes of an aggregate; None puts every user record plain.
        on_stored: is called with user records (the same objects) once they are stored, by the
        thread that uses the putter. Not together with aggregates.
        """
        self._retry = retry
        self._on_stored = on_stored
        self._stopped = threading.Event()
        interruptible = replace(retry, sleep=self._sleep)
        self._client = StreamClient(address, interruptible)
        self._threads = ThreadPoolExecutor(CALLS_AT_A_TIME, thread_name_prefix="put")
        self._queue = PutQueue()
        self._calls: dict[Future[list[PutResult]], list[PutEntry]] = {}
        self._routing = _Routing(
            self._client, interruptible, ordered=ordered, aggregate_size=aggregate_size
        )
        self._refusals = _Refusals(retry)

    def __enter__(self) -> Putter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._stopped.set()  # otherwise a call might retry for minutes
            self._threads.shutdown(cancel_futures=True)

    def put(self, records: Iterable[OutgoingRecord]) -> None:
        """Add checked user records; return when the putter can use more."""
        self._refusals.resume()
        self._queue.add(self._routing.entries(records))
        self._begin_calls()
        while len(self._queue) > LOW_WATER or self._queue.size > LOW_WATER_SIZE:
            self._step()
        self._refusals.pause()

    def flush(self) -> None:
        """Wait until all records are stored."""
        self._refusals.resume()
        while self._queue or self._calls or self._routing.is_stale:
            self._step()
        self._refusals.pause()

    def _step(self) -> None:
        """Start the calls that are due, then wait for an answer or the next due time."""
        if self._routing.is_stale and not self._calls:
            # These come first: no later entry of their lanes has been put.
            again = self._routing.renew()
            again += [record for entry in self._queue.take_all() for record in entry.members]
            self._queue.add(self._routing.entries(again))
        self._begin_calls()
        due = None if self._routing.is_stale else self._queue.next_due()
        room = len(self._calls) < CALLS_AT_A_TIME
        timeout = max(0.0, due - self._retry.clock()) if due is not None and room else None
        if self._calls:
            for call in wait(self._calls, timeout, FIRST_COMPLETED).done:
                self._handle_results(self._calls.pop(call), call.result())
        elif timeout:
            self._retry.sleep(timeout)

    def _begin_calls(self) -> None:
        while not self._routing.is_stale and len(self._calls) < CALLS_AT_A_TIME:
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
            self._routing.check(entry, result.shard_id)
            self._queue.accepted(entry)
            self._on_stored(entry.members)
        if len(refused) < len(entries):
            self._refusals.end()
        if refused:
            if self._refusals.are_too_many(results):
                waiting = len(refused) + len(self._queue) + sum(map(len, self._calls.values()))
                raise self._refusals.error(self._client.address, waiting)
            self._queue.refused(refused, self._retry.clock(), self._retry.pause)

    def _sleep(self, seconds: float) -> None:
        if self._stopped.is_set():
            raise CancelledError
        self._retry.sleep(seconds)


class _Routing:
    """Makes entries of user records for the present shards, and finds out when these have changed.

    retry: the backoff of ListShards while it lags behind. The others: those of `Putter`.
    """

    def __init__(
        self, client: StreamClient, retry: Backoff, *, ordered: bool, aggregate_size: int | None
    ) -> None:
        self._client = client
        self._retry = retry
        self._ordered = ordered
        self._aggregate_size = aggregate_size
        self._shards: ShardMap | None = None
        self._misplaced: list[tuple[PutEntry, str]] = []
        """The entries that landed in another shard than expected, each with that shard."""
        self._routes_by_hash_key = True
        """False for a stream that distributes records regardless of hash keys
        (RecordDistributionStrategy AUTO)."""
        self.is_stale = False
        """True once an answer shows that the shards have changed."""

    def entries(self, records: Iterable[OutgoingRecord]) -> list[PutEntry]:
        """Return the entries of user records. Calls ListShards for the first aggregates."""
        size = self._aggregate_size
        if size is None:
            return plain_entries(records, ordered=self._ordered)
        if self._shards is None:
            self._shards = self._client.shard_map()
        return aggregated_entries(records, self._shards, size, ordered=self._ordered)

    def check(self, entry: PutEntry, landed: str | None) -> None:
        """Compare the shard that stores an accepted entry with the expected one."""
        if self._routes_by_hash_key and entry.shard is not None and landed != entry.shard:
            assert landed is not None
            self.is_stale = True
            self._misplaced.append((entry, landed))

    def renew(self) -> list[OutgoingRecord]:
        """Learn the present shards; return the user records that have to be put again.

        No call is in progress.
        """
        self._shards = self._refreshed({shard for _, shard in self._misplaced})
        if any(_is_elsewhere(entry, self._shards.shards.get(at)) for entry, at in self._misplaced):
            self._routes_by_hash_key = False
            _log.warning(
                "The stream %s distributes records itself, regardless of hash keys, so aggregates "
                "go to any shard. A KCL drops aggregates that hold a key of another shard: write "
                "with aggregation=false if a KCL reads the stream.",
                self._client.address,
            )
        again: list[OutgoingRecord] = []
        for entry, landed in self._misplaced if self._routes_by_hash_key else ():
            own = self._shards.shards.get(landed)
            fits = own is not None and all(
                own.owns(hash_key(key, e)) for key, e, _ in entry.members
            )
            if len(entry.members) > 1 and not fits:
                # A reader that checks hash ranges, such as a KCL, drops the whole aggregate.
                again += entry.members
        self._misplaced.clear()
        self.is_stale = False
        return again

    def _refreshed(self, landed: Iterable[str]) -> ShardMap:
        """Return the present shards. Retries while ListShards lags behind those in ``landed``."""
        found = self._client.shard_map()
        for attempt in range(_REFRESHES):
            if found.shards.keys() >= set(landed):
                break
            self._retry.sleep(self._retry.pause(attempt))
            found = self._client.shard_map()
        return found


class _Refusals:
    """The refusals of entries since the service last accepted one, and for how long they last."""

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self._since = self._left_at = retry.clock()
        self._reasons: Counter[tuple[str, str]] = Counter()

    def resume(self) -> None:
        """Exclude the time since `pause`, in which no answer was handled."""
        self._since += self._retry.clock() - self._left_at

    def pause(self) -> None:
        self._left_at = self._retry.clock()

    def end(self) -> None:
        """Note that the service has accepted an entry."""
        self._since = self._retry.clock()
        self._reasons.clear()

    def are_too_many(self, results: Iterable[PutResult]) -> bool:
        """Count the refused entries of a call; return True once the time for retries is over."""
        self._reasons.update((r.error, r.message) for r in results if r.error is not None)
        return self._retry.clock() - self._since > self._retry.give_up_after

    def error(self, address: StreamAddress, waiting: int) -> ServiceError:
        """Return the error to raise. waiting: the number of entries that are not stored."""
        (code, message), _ = self._reasons.most_common(1)[0]
        counted = Counter(code for code, _ in self._reasons.elements())
        said = ", ".join(f"{code} ({count} times)" for code, count in counted.most_common())
        advice = "Try again later; if the error persists, check the AWS Health Dashboard."
        if code in THROTTLED:
            advice = (
                "The shards' limits of 1,000 records and 1 MiB a second are exceeded: add shards "
                "to the stream, spread the partition keys, or pack small records with the option "
                "aggregation=true."
            )
        return ServiceError(
            f"PutRecords failed on {address}: the service accepted none of this task's "
            f"{waiting} remaining records in {self._retry.give_up_after:g} seconds of retries: "
            f"{said}. {advice} Records that were put before remain in the stream. The most "
            f"frequent message: {message}"
        )


def _is_elsewhere(entry: PutEntry, landed: Shard | None) -> bool:
    """Return True if an entry landed in a shard that does not own its hash key.

    A shard's hash keys never change, so a reshard cannot be the reason.
    """
    key = hash_key(entry.partition_key, entry.explicit_hash_key)
    return landed is not None and not landed.owns(key)
