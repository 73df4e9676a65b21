"""Sequence numbers: 186 bits, written as 56 decimal digits, in the service's layout.

From the top (version 2, as reverse-engineered by kinesalite and relied upon by the KCL, which reads
the shard index as `(n >> 4) & 0xFFFFFFFF` and wants a bit length of exactly 186):

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

_COUNTER_SHIFT = 80
_SECOND_SHIFT = 36
# The service ends a closed shard with the greatest counter there is.
LAST_COUNTER = 0x7FFF_FFFF_FFFF_FFFF
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
            base(self.shard_created, self.shard_index)
            + (self.counter << _COUNTER_SHIFT)
            + (self.second << _SECOND_SHIFT)
        )

    def __str__(self) -> str:
        return str(int(self))


def base(shard_created: int, shard_index: int) -> int:
    """Return the bits that all sequence numbers of one shard share."""
    return (
        (2 << 184)
        | ((shard_created & 0xF_FFFF_FFFF) << 148)
        | ((shard_index & 0xF) << 144)
        | ((shard_index & 0xFFFF_FFFF) << 4)
        | 2
    )


def tail(counter: int, second: int) -> int:
    """Return the bits to add to `base` for one record; add `counter_step` for the next record."""
    return (counter << _COUNTER_SHIFT) + (second << _SECOND_SHIFT)


counter_step = 1 << _COUNTER_SHIFT


def parse(text: str) -> SequenceNumber | None:
    """Parse `text` into fields; return None if it does not have this layout."""
    if not _DIGITS.fullmatch(text):
        return None
    number = int(text)
    if number.bit_length() != 186 or number >> 184 != 2 or number & 0xF != 2:
        return None
    counter = (number >> _COUNTER_SHIFT) & 0xFFFF_FFFF_FFFF_FFFF
    index = (number >> 4) & 0xFFFF_FFFF
    if counter > LAST_COUNTER or (number >> 144) & 0xF != index & 0xF:
        return None
    return SequenceNumber(
        shard_created=(number >> 148) & 0xF_FFFF_FFFF,
        shard_index=index,
        counter=counter,
        second=(number >> _SECOND_SHIFT) & 0xF_FFFF_FFFF,
    )
