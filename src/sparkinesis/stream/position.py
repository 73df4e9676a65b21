"""Positions: where reading a shard goes on.

A position says what is *done*. Its text form is what offsets in a Spark checkpoint hold:

==========================  ======================================================================
``TRIM_HORIZON``            nothing is done: go on with the oldest record kept
``AT_TIMESTAMP:<ms>``       all that arrived before this epoch millisecond is done
``<sequence number>``       everything up to and including that record is done
``<sequence number>@<ms>``  the same, and no later record arrived before this epoch millisecond
``SHARD_END``               the shard is closed and all of it is done
==========================  ======================================================================

The time behind ``@`` is what tells an expired position from a merely old one: when the record of
the sequence number has been trimmed, but everything since that time is still kept, nothing is lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias


class Sentinel(Enum):
    """The positions that are names (KCL's ``SentinelCheckpoint``)."""

    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    SHARD_END = "SHARD_END"

    def __str__(self) -> str:
        return self.value


TRIM_HORIZON: Final = Sentinel.TRIM_HORIZON
LATEST: Final = Sentinel.LATEST
SHARD_END: Final = Sentinel.SHARD_END


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Begin with the first record that arrived at ``ms`` (epoch milliseconds) or later."""

    ms: int

    def __str__(self) -> str:
        return f"AT_TIMESTAMP:{self.ms}"


@dataclass(frozen=True, slots=True)
class AfterRecord:
    """Everything up to and including the record ``sequence_number`` is done.

    ``clear_until``: no record after it arrived before this epoch millisecond; None if unknown.
    """

    sequence_number: str
    clear_until: int | None = None

    def __str__(self) -> str:
        if self.clear_until is None:
            return self.sequence_number
        return f"{self.sequence_number}@{self.clear_until}"


Position: TypeAlias = (
    AfterRecord | AtTimestamp | Literal[Sentinel.TRIM_HORIZON, Sentinel.LATEST, Sentinel.SHARD_END]
)


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The records of a shard after ``start``, up to and including ``end``."""

    shard_id: str
    start: Position
    end: AfterRecord | Literal[Sentinel.SHARD_END]
    is_initial: bool = False
    """The start is where the user wants to begin, as far back as records are kept."""


_AFTER_RECORD = re.compile(r"([0-9]{1,128})(?:@([0-9]{1,15}))?")
_AT_TIMESTAMP = re.compile(r"AT_TIMESTAMP:([0-9]{1,15})")


def parse_position(text: str) -> Position:
    """Read a position's text form. Raises ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError(f"a position is a string, not {type(text).__name__}")
    if text in Sentinel.__members__:
        return Sentinel[text]
    if found := _AT_TIMESTAMP.fullmatch(text):
        return AtTimestamp(int(found[1]))
    if found := _AFTER_RECORD.fullmatch(text):
        return AfterRecord(found[1], None if found[2] is None else int(found[2]))
    raise ValueError(
        f"{text[:80]!r} is not a position: it must be a sequence number, TRIM_HORIZON, LATEST, "
        "SHARD_END or AT_TIMESTAMP:<epoch milliseconds>"
    )


def sequence_order(sequence_number: str) -> tuple[int, str]:
    """A key that sorts sequence numbers as numbers, without making an int of 56 digits."""
    digits = sequence_number.lstrip("0")
    return len(digits), digits
