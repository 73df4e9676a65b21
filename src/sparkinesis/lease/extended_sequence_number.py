"""A checkpoint as a lease table stores it: a sequence number pair or a sentinel, in order.

`ExtendedSequenceNumber.position` and `of` translate from and to a `sparkinesis.stream.position`.
The order is that of the KCL's ``ExtendedSequenceNumber``: AT_TIMESTAMP < TRIM_HORIZON < LATEST <
any sequence number < SHARD_END.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from sparkinesis.public import public
from sparkinesis.stream import position as pos
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Sentinel

AT_TIMESTAMP = "AT_TIMESTAMP"
TRIM_HORIZON = str(pos.TRIM_HORIZON)
LATEST = str(pos.LATEST)
SHARD_END = str(pos.SHARD_END)

_DIGITS = re.compile(r"[0-9]{1,128}")
_RANK = {AT_TIMESTAMP: -3, TRIM_HORIZON: -2, LATEST: -1, SHARD_END: 1}
"""The ranks of sentinels: negative is before, positive after every sequence number (0)."""


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

    @classmethod
    def of(cls, position: AfterRecord | AtTimestamp | Sentinel) -> ExtendedSequenceNumber:
        """Return the checkpoint for a position; a lease stores an instant next to the sentinel."""
        if isinstance(position, AfterRecord):
            return cls(position.sequence_number, position.sub_sequence_number or 0)
        return cls(AT_TIMESTAMP if isinstance(position, AtTimestamp) else str(position))

    def position(self) -> AfterRecord | Sentinel | None:
        """Return the position of the checkpoint; None for AT_TIMESTAMP, which lacks its instant.

        Raises ValueError for a sequence number that is neither digits nor a sentinel.
        """
        if self.sequence_number == AT_TIMESTAMP:
            return None
        if self.is_sentinel:
            return Sentinel[self.sequence_number]
        if not _DIGITS.fullmatch(self.sequence_number):
            raise ValueError(f"{self.sequence_number[:80]!r} is not a sequence number")
        return AfterRecord(self.sequence_number, sub_sequence_number=self.sub_sequence_number)

    @property
    def is_sentinel(self) -> bool:
        """True for a sentinel, False for a record's sequence number."""
        return self.sequence_number in _RANK

    @property
    def is_shard_end(self) -> bool:
        """True for SHARD_END."""
        return self.sequence_number == SHARD_END

    @property
    def is_latest(self) -> bool:
        """True for LATEST."""
        return self.sequence_number == LATEST

    @property
    def is_at_instant(self) -> bool:
        """True for LATEST and AT_TIMESTAMP: a lease stores their instant beside them."""
        return self.sequence_number in {LATEST, AT_TIMESTAMP}

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
