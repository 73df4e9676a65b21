"""The entries of PutRecords calls, plain or aggregated, and the queue of those that wait."""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sparkinesis.stream.kpl.magic import ENVELOPE_SIZE
from sparkinesis.stream.shard import MAX_HASH_KEY, ShardMap, hash_key

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.pack import OutgoingRecord

AGGREGATE_KEY = "a"
"""The partition key of every aggregate, as in the KPL; its explicit hash key selects the shard."""

_FRAMING = 32
"""The most bytes, besides keys and data, of a user record that is alone in an aggregate."""

MAX_ENTRIES = 500
"""The most entries of a PutRecords call."""
MAX_CALL_SIZE = 5 * 1_048_576
"""The most bytes of a call with several entries, keys included.

The service accepts 10 MiB now, and accepted 5 MiB before. Larger calls gain nothing, because a
shard accepts 1 MiB a second. A larger entry is put in a call of its own.
"""

MAX_KEY_LENGTH = 256
"""The most characters of a partition key; the fewest are one."""


def random_key() -> str:
    """Return a unique partition key, so that records spread over the shards."""
    return f"{random.SystemRandom().getrandbits(64):016x}"


class PutEntry(msgspec.Struct):
    """One entry of a PutRecords call.

    partition_key: empty for a record without a key, for streams that distribute records themselves
    (RecordDistributionStrategy AUTO).
    lane: entries of one lane are put one after the other; None if order does not matter.
    shard: the expected shard; None if any shard will do.
    members: the user records in the entry, in order; one for a plain user record.
    attempts: the number of times that the service has refused the entry.
    """

    partition_key: str
    explicit_hash_key: str | None
    data: bytes
    members: Sequence[OutgoingRecord]
    lane: str | None = None
    shard: str | None = None
    attempts: int = 0

    @property
    def size(self) -> int:
        """The bytes that count against limits: data and partition key."""
        return len(self.data) + len(self.partition_key.encode())


class PutResult(NamedTuple):
    """The result of one entry of a PutRecords call: the shard that stores it, or the error."""

    shard_id: str | None
    error: str | None = None
    """The service's error code, such as ``ProvisionedThroughputExceededException``."""
    message: str = ""


def plain_entries(records: Iterable[OutgoingRecord], *, ordered: bool) -> list[PutEntry]:
    """Return one entry per user record. If ``ordered``, each partition key is a lane."""
    return [
        PutEntry(
            record[0], record[1], record[2], (record,), (record[0] or None) if ordered else None
        )
        for record in records
    ]


def why_refused(partition_key: str, explicit_hash_key: str | None) -> str | None:
    """Return the reason why Kinesis refuses a record's keys; None if it accepts them.

    User records have these keys if another library's producer packed them into an aggregate.
    """
    length, explicit = len(partition_key), explicit_hash_key
    if not 1 <= length <= MAX_KEY_LENGTH:
        return f"its partition key has {length} characters; Kinesis accepts 1 to {MAX_KEY_LENGTH}"
    if explicit is not None and str(_hash_key(explicit)) != explicit:
        return (
            f"its explicit hash key is {explicit[:80]!r}; Kinesis accepts a decimal integer "
            "from 0 to 2**128 - 1, without leading zeros"
        )
    return None


def fitting_keys(
    partition_key: str | None, explicit_hash_key: str | None, instead: str
) -> tuple[str, str | None]:
    """Return a record's keys, changed if Kinesis would refuse them.

    A long partition key is truncated, a missing one is replaced with ``instead``, and an invalid
    explicit hash key is dropped.
    """
    known = None if explicit_hash_key is None else _hash_key(explicit_hash_key)
    return (partition_key or instead)[:MAX_KEY_LENGTH], None if known is None else str(known)


def _hash_key(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MAX_HASH_KEY)):
        return None
    number = int(text)
    return number if number <= MAX_HASH_KEY else None


def aggregated_entries(
    records: Iterable[OutgoingRecord], shards: ShardMap, max_size: int, *, ordered: bool
) -> list[PutEntry]:
    """Return aggregates of at most ``max_size`` bytes, each with user records of one shard.

    Like the KPL: an aggregate has the explicit hash key of its first user record, so that it lands
    in the shard of all of them; a user record that is alone, or too large for an aggregate, is put
    plain. A reader that checks hash ranges, such as a KCL, drops an aggregate that holds a user
    record of another shard. If ``ordered``, each shard is a lane.
    """
    by_shard: defaultdict[str, list[OutgoingRecord]] = defaultdict(list)
    for record in records:
        by_shard[shards.shard_of(hash_key(record[0], record[1]))].append(record)
    return [
        _entry(members, data, shard, ordered=ordered)
        for shard, members_of_shard in by_shard.items()
        for members, data in _packed(members_of_shard, max_size)
    ]


def _entry(
    members: Sequence[OutgoingRecord], data: bytes, shard: str, *, ordered: bool
) -> PutEntry:
    key, explicit, own = members[0]
    lane = shard if ordered else None
    if len(members) == 1:
        return PutEntry(key, explicit, own, members, lane, shard)
    return PutEntry(AGGREGATE_KEY, str(hash_key(key, explicit)), data, members, lane, shard)


def _packed(
    records: Iterable[OutgoingRecord], max_size: int
) -> Iterator[tuple[Sequence[OutgoingRecord], bytes]]:
    """Yield the user records in order, in groups, each with the data of its aggregate."""
    fitting: list[OutgoingRecord] = []
    for record in records:
        key, explicit, data = record
        keys = len(key.encode()) + len(explicit or "")
        if ENVELOPE_SIZE + _FRAMING + keys + len(data) <= max_size:
            fitting.append(record)
            continue
        yield from _blobs(fitting, max_size)
        yield (record,), data
        fitting = []
    yield from _blobs(fitting, max_size)


def _blobs(
    records: Sequence[OutgoingRecord], max_size: int
) -> Iterator[tuple[Sequence[OutgoingRecord], bytes]]:
    # Imports the protobuf runtime, which plain records do not need.
    from sparkinesis.stream.kpl.pack import aggregate  # noqa: PLC0415

    rest = iter(records)
    for blob in aggregate(records, max_size):
        yield tuple(islice(rest, blob.count)), blob.data


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
        while self._ready and len(taken) < MAX_ENTRIES:
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
