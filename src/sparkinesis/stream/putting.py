"""Puts user records on a stream, each at least once, with parallel calls and retries.

A queue chooses the entries of each PutRecords call, which may accept an entry and refuse its
neighbour: it guarantees no order, even within a call. If order matters, a call therefore holds at
most one entry of a lane (a partition key, or a shard of aggregates), and no other entry of the lane
is put until that one is accepted.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from itertools import chain, count
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import THROTTLED, Backoff
from sparkinesis.stream.put_entry import PutEntry, PutResult, aggregated_entries, plain_entries
from sparkinesis.stream.shard import Shard, ShardMap, hash_key

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.pack import OutgoingRecord

_MAX_ENTRIES = 500
"""The most entries of a PutRecords call."""
MAX_CALL_SIZE = 5 * 1_048_576
"""The most bytes of a call with several entries, keys included.

The service accepts 10 MiB now, and accepted 5 MiB before. Larger calls gain nothing, because a
shard accepts 1 MiB a second. A larger entry is put in a call of its own.
"""


class PutQueue:
    """The entries that wait for a call. Owned by one thread.

    The caller reports the result of each taken entry with `accepted` or `refused`.
    """

    def __init__(self) -> None:
        self._ready: deque[PutEntry] = deque()
        self._later: list[tuple[float, int, Sequence[PutEntry]]] = []
        self._number = count()
        self._behind: dict[str, deque[PutEntry]] = {}
        """The later entries of each lane that has an entry ready, waiting or taken."""
        self._waiting = 0
        self.size = 0
        """The bytes of the entries that are not taken."""

    def __len__(self) -> int:
        """Return the number of entries that are not taken."""
        return self._waiting

    def add(self, entries: Iterable[PutEntry]) -> None:
        for entry in entries:
            self._waiting += 1
            self.size += entry.size
            if entry.lane is None:
                self._ready.append(entry)
            elif entry.lane in self._behind:
                self._behind[entry.lane].append(entry)
            else:
                self._behind[entry.lane] = deque()
                self._ready.append(entry)

    def take(self, now: float) -> list[PutEntry]:
        """Return the entries of the next call, within its limits; empty if none is due."""
        while self._later and self._later[0][0] <= now:
            # Refused entries go to the front, because they have waited longest.
            self._ready.extendleft(reversed(heapq.heappop(self._later)[2]))
        taken: list[PutEntry] = []
        size = 0
        while self._ready and len(taken) < _MAX_ENTRIES:
            size += self._ready[0].size
            if taken and size > MAX_CALL_SIZE:
                break
            taken.append(self._ready.popleft())
        self._waiting -= len(taken)
        self.size -= sum(entry.size for entry in taken)
        return taken

    def next_due(self) -> float | None:
        """Return the instant of the next retry; None if no refused entries are waiting."""
        return self._later[0][0] if self._later else None

    def accepted(self, entry: PutEntry) -> None:
        """Record that the service stored a taken entry; this frees the next one of its lane."""
        if entry.lane is None:
            return
        behind = self._behind[entry.lane]
        if behind:
            self._ready.append(behind.popleft())
        else:
            del self._behind[entry.lane]

    def refused(
        self, entries: Sequence[PutEntry], now: float, pause: Callable[[int], float]
    ) -> None:
        """Record that the service refused taken entries of one call; retry them after a pause.

        They wait together, so that they do not become many small calls. ``pause`` returns the
        seconds to wait for a number of earlier refusals: the smallest number of these entries, so
        that an often refused entry does not delay the others.
        """
        delay = pause(min(entry.attempts for entry in entries))
        for entry in entries:
            entry.attempts += 1
            self.size += entry.size
        heapq.heappush(self._later, (now + delay, next(self._number), entries))
        self._waiting += len(entries)

    def take_all(self) -> list[PutEntry]:
        """Empty the queue and return its entries, each lane in order. Only while none is taken."""
        later = chain.from_iterable(entries for _, _, entries in self._later)
        behind = chain.from_iterable(self._behind.values())
        found = list(chain(later, self._ready, behind))
        self._ready.clear()
        self._later.clear()
        self._behind.clear()
        self._waiting = self.size = 0
        return found


_log = logging.getLogger(__name__)

CALLS_AT_A_TIME = 4
"""The most simultaneous PutRecords calls of one task."""

LOW_WATER = _MAX_ENTRIES * CALLS_AT_A_TIME
LOW_WATER_SIZE = 8 * 1_048_576
"""`put` returns for more records once the waiting entries and bytes are not above these."""

RETRY = Backoff(cap=3.0)
"""The backoff for refused entries. A shard's limits are per second, so a longer cap would leave it
idle."""

_REFRESHES = 6


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
        self._address = address
        self._ordered = ordered
        self._aggregate_size = aggregate_size
        self._retry = retry
        self._on_stored = on_stored
        self._stopped = threading.Event()
        self._client = StreamClient(address, replace(retry, sleep=self._sleep))
        self._threads = ThreadPoolExecutor(CALLS_AT_A_TIME, thread_name_prefix="put")
        self._queue = PutQueue()
        self._calls: dict[Future[list[PutResult]], list[PutEntry]] = {}
        self._shards: ShardMap | None = None
        self._misplaced: list[tuple[PutEntry, str]] = []
        """The entries that landed in another shard than expected, each with that shard."""
        self._routes_by_hash_key = True
        """False for a stream that distributes records regardless of hash keys
        (RecordDistributionStrategy AUTO)."""
        self._stale = False
        """True once an answer shows that the shards have changed."""
        self._progress_at = self._left_at = retry.clock()
        self._errors: Counter[tuple[str, str]] = Counter()
        """The reasons of refusals since the service last accepted an entry."""

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
        self._resume()
        self._queue.add(self._entries(records))
        self._begin_calls()
        while len(self._queue) > LOW_WATER or self._queue.size > LOW_WATER_SIZE:
            self._step()
        self._left_at = self._retry.clock()

    def flush(self) -> None:
        """Wait until all records are stored."""
        self._resume()
        while self._queue or self._calls or self._stale:
            self._step()
        self._left_at = self._retry.clock()

    def _resume(self) -> None:
        """Exclude the time since the last call, in which no answer was handled."""
        self._progress_at += self._retry.clock() - self._left_at

    def _entries(self, records: Iterable[OutgoingRecord]) -> list[PutEntry]:
        size = self._aggregate_size
        if size is None:
            return plain_entries(records, ordered=self._ordered)
        if self._shards is None:
            self._shards = self._client.shard_map()
        return aggregated_entries(records, self._shards, size, ordered=self._ordered)

    def _step(self) -> None:
        """Start the calls that are due, then wait for an answer or the next due time."""
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
        advice = "Try again later; if the error persists, check the AWS Health Dashboard."
        if code in THROTTLED:
            advice = (
                "The shards' limits of 1,000 records and 1 MiB a second are exceeded: add shards "
                "to the stream, spread the partition keys, or pack small records with the option "
                "aggregation=true."
            )
        return ServiceError(
            f"PutRecords failed on {self._address}: the service accepted none of this task's "
            f"{waiting} remaining records in {self._retry.give_up_after:g} seconds of retries: "
            f"{said}. {advice} Records that were put before remain in the stream. The most "
            f"frequent message: {message}"
        )

    def _reroute(self) -> None:
        """Pack the remaining records again, for the present shards. No call is in progress."""
        self._shards = self._refreshed({shard for _, shard in self._misplaced})
        if any(_is_elsewhere(entry, self._shards.shards.get(at)) for entry, at in self._misplaced):
            self._routes_by_hash_key = False
            _log.warning(
                "The stream %s distributes records itself, regardless of hash keys, so aggregates "
                "go to any shard. A KCL drops aggregates that hold a key of another shard: write "
                "with aggregation=false if a KCL reads the stream.",
                self._address,
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
        # These come first: no later entry of their lanes has been put.
        again += [record for entry in self._queue.take_all() for record in entry.members]
        self._misplaced.clear()
        self._stale = False
        self._queue.add(self._entries(again))

    def _refreshed(self, landed: Iterable[str]) -> ShardMap:
        """Return the present shards. Retries while ListShards lags behind those in ``landed``."""
        found = self._client.shard_map()
        for attempt in range(_REFRESHES):
            if found.shards.keys() >= set(landed):
                break
            self._sleep(self._retry.pause(attempt))
            found = self._client.shard_map()
        return found

    def _sleep(self, seconds: float) -> None:
        if self._stopped.is_set():
            raise CancelledError
        self._retry.sleep(seconds)


def _is_elsewhere(entry: PutEntry, landed: Shard | None) -> bool:
    """Return True if an entry landed in a shard that does not own its hash key.

    A shard's hash keys never change, so a reshard cannot be the reason.
    """
    key = hash_key(entry.partition_key, entry.explicit_hash_key)
    return landed is not None and not landed.owns(key)
