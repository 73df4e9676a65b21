"""One shard: a range of hash keys, the log of its records, and their sequence numbers.

A record is stored as GetRecords returns it, in JSON and in CBOR, encoded once on PutRecord; a page
is a range of bytes of one of them. Positions are indexes into the log counted from the shard's
first record ever, so they survive trimming. Record i has counter i + 1 in its sequence number,
which makes the position of a sequence number arithmetic.

Sequence numbers are 186 bits, written as 56 decimal digits, in the service's layout. From the top
(version 2, as reverse-engineered by kinesalite and relied upon by the KCL, which reads the shard
index as `(n >> 4) & 0xFFFFFFFF` and wants a bit length of exactly 186):

    bits     field
    184-185  2, always
    148-183  creation time of the shard, in seconds
    144-147  lowest nibble of the shard index
     80-143  a counter, growing with every record of the shard
     72- 79  0
     36- 71  arrival time of the record, in seconds
      4- 35  index of the shard (the number in its id)
      0-  3  2, the version

The creation time leads, so every record of a child shard is greater than every record of its
parents as long as a child is "born" in a later second than they were. Numbers of one shard grow
with the counter, whatever the clock does.
"""

from __future__ import annotations

import dataclasses
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from sparkinesis.local.model.limits import ShardUse
from sparkinesis.local.model.records import (
    JSON_HEAD,
    SEQUENCE_DIGITS,
    NewRecord,
    ReadRecords,
    RecordLog,
    stored_records,
)

_COUNTER_SHIFT = 80
_SECOND_SHIFT = 36
# The service ends a closed shard with the greatest counter there is.
_LAST_COUNTER = 0x7FFF_FFFF_FFFF_FFFF
_DIGITS = re.compile(r"0|[1-9]\d{0,128}")


@dataclasses.dataclass(frozen=True)
class SequenceNumber:
    """The fields of a sequence number; times are in seconds since the epoch."""

    shard_created: int
    shard_index: int
    counter: int
    second: int

    def __int__(self) -> int:
        return (
            _base(self.shard_created, self.shard_index)
            + (self.counter << _COUNTER_SHIFT)
            + (self.second << _SECOND_SHIFT)
        )

    def __str__(self) -> str:
        return str(int(self))


def _base(shard_created: int, shard_index: int) -> int:
    """Return the bits that all sequence numbers of one shard share."""
    return (
        (2 << 184)
        | ((shard_created & 0xF_FFFF_FFFF) << 148)
        | ((shard_index & 0xF) << 144)
        | ((shard_index & 0xFFFF_FFFF) << 4)
        | 2
    )


def _tail(counter: int, second: int) -> int:
    """Return the bits to add to `_base` for one record; add `_COUNTER_STEP` for the next record."""
    return (counter << _COUNTER_SHIFT) + (second << _SECOND_SHIFT)


_COUNTER_STEP = 1 << _COUNTER_SHIFT


def parse_sequence_number(text: str) -> SequenceNumber | None:
    """Parse `text` into fields; return None if it does not have this layout."""
    if not _DIGITS.fullmatch(text):
        return None
    number = int(text)
    if number.bit_length() != 186 or number >> 184 != 2 or number & 0xF != 2:
        return None
    counter = (number >> _COUNTER_SHIFT) & 0xFFFF_FFFF_FFFF_FFFF
    index = (number >> 4) & 0xFFFF_FFFF
    if counter > _LAST_COUNTER or (number >> 144) & 0xF != index & 0xF:
        return None
    return SequenceNumber(
        shard_created=(number >> 148) & 0xF_FFFF_FFFF,
        shard_index=index,
        counter=counter,
        second=(number >> _SECOND_SHIFT) & 0xF_FFFF_FFFF,
    )


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
        self.log = ShardLog(_base(born_s, index))
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
        last = _LAST_COUNTER
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
        first = self._base + _tail(self.end_position + 1, second)
        step = _COUNTER_STEP
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
