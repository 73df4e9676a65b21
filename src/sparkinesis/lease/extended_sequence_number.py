"""A checkpoint's place: a sequence number and a sub-sequence number, or a sentinel, in order.

The order is that of the KCL's ``ExtendedSequenceNumber``: AT_TIMESTAMP < TRIM_HORIZON < LATEST <
any sequence number < SHARD_END.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from sparkinesis.public import public

AT_TIMESTAMP = "AT_TIMESTAMP"
TRIM_HORIZON = "TRIM_HORIZON"
LATEST = "LATEST"
SHARD_END = "SHARD_END"

_RANK = {AT_TIMESTAMP: -3, TRIM_HORIZON: -2, LATEST: -1, SHARD_END: 1}
"""Before (negative) or after (positive) every sequence number, whose rank is 0."""


@public
@functools.total_ordering
@dataclass(frozen=True, slots=True)
class ExtendedSequenceNumber:
    """``sequence_number``: decimal digits or a sentinel; ``sub_sequence_number``: from 0.

    Comparing raises ValueError for one that is neither. Sentinels are ordered by name alone;
    equality, as in the KCL, is that of both parts.
    """

    sequence_number: str
    sub_sequence_number: int = 0

    @property
    def is_sentinel(self) -> bool:
        """Whether this is a name and not a record's place."""
        return self.sequence_number in _RANK

    @property
    def is_shard_end(self) -> bool:
        return self.sequence_number == SHARD_END

    def __lt__(self, other: ExtendedSequenceNumber) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, int]:
        rank = _RANK.get(self.sequence_number)
        if rank is not None:
            return rank, 0, 0
        if not (self.sequence_number.isascii() and self.sequence_number.isdecimal()):
            raise ValueError(f"{self.sequence_number[:80]!r} is not a sequence number")
        return 0, int(self.sequence_number), self.sub_sequence_number

    def __str__(self) -> str:
        if self.is_sentinel:
            return self.sequence_number
        return f"{self.sequence_number}:{self.sub_sequence_number}"
