"""One shard: a range of hash keys, and the log of its records.

A record is stored as GetRecords returns it, in JSON and in CBOR, encoded once on PutRecord; a page
is a range of bytes of one of them. Positions are indexes into the log counted from the shard's
first record ever, so they survive trimming. Record i has counter i + 1 in its sequence number,
which makes the position of a sequence number arithmetic.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from sparkinesis.local.model import sequence
from sparkinesis.local.model.limits import ShardUse
from sparkinesis.local.model.records import (
    JSON_HEAD,
    SEQUENCE_DIGITS,
    NewRecord,
    ReadRecords,
    RecordLog,
    stored_records,
)
from sparkinesis.local.model.sequence import SequenceNumber

# Trimmed records are deleted once they make up this share of the log (1/n), so that trimming record
# by record costs no more than O(1) each.
_TRIM_SHARE = 4


class Shard:
    """A shard. Its hash range is inclusive at both ends; `closed_ms` is None while it is open.

    born_s is the second that its sequence numbers begin with; created_ms and closed_ms are clock
    times.
    """

    def __init__(
        self,
        index: int,
        hash_start: int,
        hash_end: int,
        *,
        created_ms: int,
        born_s: int,
        parents: tuple[str, ...] = (),
    ) -> None:
        self.index = index
        self.id = f"shardId-{index:012d}"
        self.hash_start = hash_start
        self.hash_end = hash_end
        self.parents = parents
        self.children: tuple[Shard, ...] = ()
        self.created_ms = created_ms
        self.closed_ms: int | None = None
        self.born_s = born_s
        self.use = ShardUse()
        self.log = ShardLog(sequence.base(born_s, index))
        self._watchers: set[Callable[[], None]] = set()

    def __repr__(self) -> str:
        return f"<{self.id} {self.hash_start}-{self.hash_end} open={self.is_open}>"

    @property
    def is_open(self) -> bool:
        return self.closed_ms is None

    @property
    def starting_sequence_number(self) -> str:
        return str(SequenceNumber(self.born_s, self.index, 0, self.born_s))

    @property
    def ending_sequence_number(self) -> str | None:
        if self.closed_ms is None:
            return None
        last = sequence.LAST_COUNTER
        return str(SequenceNumber(self.born_s, self.index, last, self.closed_ms // 1000))

    @property
    def hash_range(self) -> dict[str, str]:
        """HashKeyRange, as in responses."""
        return {"StartingHashKey": str(self.hash_start), "EndingHashKey": str(self.hash_end)}

    @property
    def child_shards(self) -> list[dict[str, object]]:
        """ChildShards, as in responses."""
        return [
            {
                "ShardId": child.id,
                "ParentShards": list(child.parents),
                "HashKeyRange": child.hash_range,
            }
            for child in self.children
        ]

    def append(
        self,
        records: Sequence[NewRecord],
        arrival_ms: int,
        second: int,
        *,
        encrypted: bool = False,
    ) -> list[str]:
        """Store records and return their sequence numbers.

        second: of their sequence numbers. encrypted: give the records an EncryptionType.
        """
        numbers = self.log.append(records, arrival_ms, second, encrypted=encrypted)
        if self._watchers:
            self.announce()
        return numbers

    def close(self, now: int, children: tuple[Shard, ...]) -> None:
        self.closed_ms = now
        self.children = children
        self.announce()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` once, on the next record or when the shard closes."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.discard(watcher)

    def announce(self) -> None:
        watchers, self._watchers = self._watchers, set()
        for watcher in watchers:
            watcher()

    def number_before(self, position: int, second: int) -> str:
        """Return a number from the last record before `position` up to, excluding, the one at it.

        Like the service's continuation numbers, it grows with time and need not be a record's.
        """
        number = SequenceNumber(self.born_s, self.index, position, second)
        return str(max(int(number), self.log.number_at(position - 1) or 0))

    def millis_behind(self, position: int, now: int) -> int:
        """Return MillisBehindLatest for a reader at `position`."""
        if position >= self.log.end_position:
            return 0
        # At least 1: consumers take 0 to mean that they are at the tip.
        return max(1, now - self.log.arrival_at(position))


class ShardLog:
    """The records of a shard, in both encodings, without those that are trimmed.

    base: the bits that all of their sequence numbers share.
    """

    def __init__(self, base: int) -> None:
        self._base = base
        self._json = RecordLog()
        self._cbor = RecordLog()
        # The greatest arrival time up to and including each record: sorted even if arrivals are
        # not, and its first entry >= T is the first record that arrived at T or later.
        self._arrivals = array("q")
        # Bytes stored up to and including each record, so that a page's end is a bisection.
        self._bytes = array("q")
        self._bytes_before = 0
        self._dropped = 0  # records deleted from the front of the four logs above
        self._trimmed = 0  # records at the front that are trimmed but not yet deleted

    @property
    def first_position(self) -> int:
        """The position of the oldest record that is not trimmed."""
        return self._dropped + self._trimmed

    @property
    def end_position(self) -> int:
        """The position of the next record to be put."""
        return self._dropped + len(self._arrivals)

    def append(
        self, records: Sequence[NewRecord], arrival_ms: int, second: int, *, encrypted: bool
    ) -> list[str]:
        """Store records and return their sequence numbers; see `Shard.append`."""
        first = self._base + sequence.tail(self.end_position + 1, second)
        step = sequence.counter_step
        numbers = [str(first + i * step) for i in range(len(records))]
        json, cbor = stored_records(records, numbers, arrival_ms, encrypted=encrypted)
        self._json.extend(json)
        self._cbor.extend(cbor)
        greatest = max(self._arrivals[-1], arrival_ms) if self._arrivals else arrival_ms
        self._arrivals.extend([greatest] * len(records))
        total = self._bytes[-1] if self._bytes else self._bytes_before
        for record in records:
            total += record.size
            self._bytes.append(total)
        return numbers

    def read(self, position: int, limit: int, max_bytes: int) -> ReadRecords:
        """Return records from `position` (or the oldest one) on, at most `limit` and `max_bytes`.

        The first record is returned whatever its size.
        """
        start = max(position - self._dropped, self._trimmed)
        if start >= len(self._arrivals):
            return ReadRecords(max(position, self.first_position))
        before = self._bytes[start - 1] if start else self._bytes_before
        end = bisect_right(self._bytes, before + max_bytes, start, len(self._bytes))
        end = min(max(end, start + 1), start + limit)
        json, cbor = self._json.span(start, end), self._cbor.span(start, end)
        size = self._bytes[end - 1] - before
        return ReadRecords(self._dropped + end, end - start, json, cbor, size)

    def position_of(self, number: SequenceNumber, *, after: bool) -> int:
        """Return the position of the first record at (or after) a sequence number of the shard."""
        position = number.counter - 1
        stored = self.number_at(position)
        if stored is not None:
            return position if stored >= int(number) + after else position + 1
        # A deleted record, or the shard's own starting or ending number; reading clamps it.
        return max(position, 0)

    def position_at(self, time_ms: int) -> int:
        """Return the position of the first record that arrived at `time_ms` or later."""
        return self._dropped + bisect_left(self._arrivals, time_ms, self._trimmed)

    def arrival_at(self, position: int) -> int:
        """Return the arrival time of the record at `position`, or of the oldest one if trimmed."""
        return self._arrivals[max(position - self._dropped, self._trimmed)]

    def number_at(self, position: int) -> int | None:
        """Return the sequence number of the record at a position; None if it is not stored."""
        index = position - self._dropped
        if not 0 <= index < len(self._arrivals):
            return None
        return int(self._json.within(index, len(JSON_HEAD), SEQUENCE_DIGITS))

    def trim(self, horizon_ms: int) -> None:
        """Trim the records that arrived before `horizon_ms`."""
        if not self._arrivals or self._arrivals[min(self._trimmed, len(self._arrivals) - 1)] >= (
            horizon_ms
        ):
            return
        self._trimmed = bisect_left(self._arrivals, horizon_ms, self._trimmed)
        if self._trimmed * _TRIM_SHARE < len(self._arrivals):
            return
        count = self._trimmed
        self._bytes_before = self._bytes[count - 1]
        del self._arrivals[:count], self._bytes[:count]
        self._json.drop(count)
        self._cbor.drop(count)
        self._dropped += count
        self._trimmed = 0
