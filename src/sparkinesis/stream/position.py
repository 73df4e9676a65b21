"""Positions: the points from which reading a shard resumes.

A position says what is *done*. Offsets in a Spark checkpoint hold its text form:

==========================  ======================================================================
``TRIM_HORIZON``            nothing is done: resume with the oldest record kept
``AT_TIMESTAMP:<ms>``       all that arrived before this epoch millisecond is done
``<sequence number>``       everything up to and including that record is done
``<sequence number>@<ms>``  the same, and no later record arrived before this epoch millisecond
``<sequence number>:<n>``   everything before that record is done, and the user records 0 to n of
                            that record
``<sequence number>:-1``    everything before that record is done, and nothing of that record
``APPLICATION:<name>``      all that this KCL application has done; only in an initial offset
``SHARD_END``               the shard is closed and all of it is done
==========================  ======================================================================

Optional parts follow a sequence number, each after its own sign, in this order:

=========  =======================================================================================
``:<n>``   the last user record that is done; -1: none of that record (above)
``@<ms>``  no later record arrived before this epoch millisecond (above)
``~<ms>``  the record of the sequence number arrived at this epoch millisecond
``^<sn>``  in the end of a batch: ``<sn>`` is the first record of the batch in this shard
=========  =======================================================================================

The time after ``@`` distinguishes an expired position from one that is only old: if the record of
the sequence number was trimmed, but all records since that time are still kept, nothing is lost.
The time after ``~`` shows if the present retention explains why the record was removed. The record
after ``^`` is stored if the start of the batch names no record: a replay looks for that record.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sparkinesis.errors import OptionError


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

NONE_OF_IT: Final = -1
"""The sub-sequence number of a position before a record, of which nothing is done."""

END_OF_TIME_MS: Final = 253_402_300_800_000
"""The start of the year 10000 in epoch milliseconds: all instants are before it."""


CLOCKS_DIFFER_MS = 60_000
"""An instant that is at most this far in the future is accepted: clocks differ."""


class AtTimestamp(msgspec.Struct, frozen=True):
    """The position of the first record that arrived at ``ms`` (epoch milliseconds) or later."""

    ms: int

    @classmethod
    def of(cls, instant: datetime) -> AtTimestamp:
        """Return the position of an aware datetime, to the nearest millisecond."""
        return cls(round(instant.timestamp() * 1000))

    @property
    def instant(self) -> datetime:
        """The instant as a datetime in UTC."""
        # A float of seconds would round the millisecond.
        instant = datetime.fromtimestamp(self.ms // 1000, timezone.utc)
        return instant.replace(microsecond=self.ms % 1000 * 1000)

    def __str__(self) -> str:
        return f"AT_TIMESTAMP:{self.ms}"


class AfterRecord(msgspec.Struct, frozen=True):
    """The position after the record ``sequence_number``: everything up to it is done.

    ``clear_until``: no record after it arrived before this epoch millisecond; None if unknown.
    ``sub_sequence_number``: the last user record of that record that is done, from 0, as a KCL
    application checkpoints it. None: all of the record is done. `NONE_OF_IT`: the position before
    the record. It ends a batch of all that arrived by an instant, where the record is the first one
    that arrived later: the planner has seen that record, and not the one before it.
    ``arrived_ms``: the time at which the record arrived, in epoch milliseconds; None if unknown.
    ``first``: the sequence number of the first record of the batch that ends here, if the start of
    the batch names no record; else None. It does not affect the position.
    """

    sequence_number: str
    clear_until: int | None = None
    sub_sequence_number: int | None = None
    arrived_ms: int | None = None
    first: str | None = None

    def __str__(self) -> str:
        parts = (self.sub_sequence_number, self.clear_until, self.arrived_ms, self.first)
        given = zip(_SIGNS, parts, strict=True)
        return self.sequence_number + "".join(f"{s}{part}" for s, part in given if part is not None)

    @property
    def is_before(self) -> bool:
        """True if everything before the record is done, and nothing of the record."""
        return self.sub_sequence_number == NONE_OF_IT

    def is_same_place(self, other: object) -> bool:
        """Return True if the same records are done; arrival times and batches may differ."""
        return (
            isinstance(other, AfterRecord)
            and self.sequence_number == other.sequence_number
            and self.sub_sequence_number == other.sub_sequence_number
        )


class FromApplication(msgspec.Struct, frozen=True):
    """The position of the KCL application ``name``, by its lease table of the same name."""

    name: str

    def __str__(self) -> str:
        return f"APPLICATION:{self.name}"


Position: TypeAlias = (
    AfterRecord
    | AtTimestamp
    | FromApplication
    | Literal[Sentinel.TRIM_HORIZON, Sentinel.LATEST, Sentinel.SHARD_END]
)

InitialPosition: TypeAlias = AtTimestamp | Literal[Sentinel.TRIM_HORIZON] | Literal[Sentinel.LATEST]
"""The position at which a query or an application without progress begins."""


class ShardRange(msgspec.Struct, frozen=True):
    """The records of a shard after ``start``, up to ``end``, which may be included (`is_before`).

    If the start lies inside a record, the remaining user records of that record come first.
    """

    shard_id: str
    start: Position
    end: AfterRecord | Literal[Sentinel.SHARD_END]
    is_initial: bool = False
    """True if the start is the user's initial position, which may be older than kept records."""
    first: str | None = None
    """The sequence number of the first record that the plan saw in the range; None if unknown."""


def between_batches(position: Position) -> Position:
    """Return the same position without the attributes of the batch that ended there."""
    if isinstance(position, AfterRecord) and position.first is not None:
        return AfterRecord(
            position.sequence_number,
            position.clear_until,
            position.sub_sequence_number,
            position.arrived_ms,
        )
    return position


def advanced(position: Position, clear_until: int | None) -> Position:
    """Return the position with the fact that no later record arrived before ``clear_until``."""
    if clear_until is None:
        return position
    if isinstance(position, AfterRecord):
        # Each batch advances each quiet shard; `dataclasses.replace` takes five times as long.
        return AfterRecord(
            position.sequence_number,
            max(clear_until, position.clear_until or clear_until),
            position.sub_sequence_number,
            position.arrived_ms,
            position.first,
        )
    if isinstance(position, AtTimestamp):
        return AtTimestamp(max(clear_until, position.ms))
    return AtTimestamp(clear_until) if position is TRIM_HORIZON else position


_SIGNS = ":@~^"
"""The signs of the optional parts after a sequence number, in order."""

_AFTER_RECORD = re.compile(
    r"([0-9]{1,128})(?::(-1|[0-9]{1,18}))?(?:@([0-9]{1,15}))?(?:~([0-9]{1,15}))?(?:\^([0-9]{1,128}))?"
)
_AT_TIMESTAMP = re.compile(r"AT_TIMESTAMP:([0-9]{1,15})")
_FROM_APPLICATION = re.compile(r"APPLICATION:([a-zA-Z0-9_.-]{3,255})")


def parse_position(text: str) -> Position:
    """Read a position's text form. Raises ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError(f"a position is a string, not {type(text).__name__}")
    if text in Sentinel.__members__:
        return Sentinel[text]
    found = _AT_TIMESTAMP.fullmatch(text)
    if found and int(found[1]) < END_OF_TIME_MS:
        return AtTimestamp(int(found[1]))
    if found := _AFTER_RECORD.fullmatch(text):
        sub, clear, arrived = (None if part is None else int(part) for part in found.group(2, 3, 4))
        return AfterRecord(found[1], clear, sub, arrived, found[5])
    if found := _FROM_APPLICATION.fullmatch(text):
        return FromApplication(found[1])
    raise ValueError(
        f"{text[:80]!r} is not a position: it must be a sequence number, TRIM_HORIZON, LATEST, "
        "SHARD_END, AT_TIMESTAMP:<epoch milliseconds> or APPLICATION:<name>"
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NAMED: dict[str, InitialPosition] = {
    "latest": LATEST,
    "trim_horizon": TRIM_HORIZON,
    "earliest": TRIM_HORIZON,
}


def parse_initial_position(value: object, others: str = "") -> InitialPosition:
    """Read a position as users write it: ``latest``, ``trim_horizon`` or an instant.

    Names may be in any case, and ``earliest`` means TRIM_HORIZON. An instant is an aware datetime,
    or an ISO 8601 text with a time zone; fractions of a millisecond are dropped.

    Raises ValueError with a text that continues a sentence after the value. ``others``: more values
    that the caller accepts, for that text.
    """
    text = value.strip() if isinstance(value, str) else ""
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    try:
        # Python 3.10 reads neither a trailing Z nor fewer than three decimals.
        instant = (
            value
            if isinstance(value, datetime)
            else datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
        )
    except ValueError:
        raise ValueError(
            "which is not a position; it takes latest, trim_horizon or an instant with a time "
            f"zone (ISO 8601), such as 2026-11-21T08:30:00Z{others}"
        ) from None
    if instant.tzinfo is None:
        text = instant.isoformat()
        raise ValueError(
            f"an instant without a time zone; add one, for instance {text}Z or {text}+01:00"
        )
    ms = (instant - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms < END_OF_TIME_MS:
        raise ValueError("an instant before 1970 or after 9999")
    return AtTimestamp(ms)


def position_option(name: str, value: object) -> InitialPosition:
    """Read the position of an option, as `parse_initial_position`. Raises `OptionError`."""
    try:
        return parse_initial_position(value)
    except ValueError as error:
        given = value.isoformat() if isinstance(value, datetime) else repr(value)
        raise OptionError(f"{name} is {given}, {error}.") from None


def iterator_type(position: Position, inclusive: bool) -> dict[str, Any]:
    """Return GetShardIterator's arguments for reading from ``position``.

    ``inclusive``: begin with the record of an `AfterRecord` position. Raises ValueError for
    SHARD_END and for an application's name.
    """
    if isinstance(position, AfterRecord):
        inclusive = inclusive or position.sub_sequence_number is not None
        kind = "AT_SEQUENCE_NUMBER" if inclusive else "AFTER_SEQUENCE_NUMBER"
        return {"ShardIteratorType": kind, "StartingSequenceNumber": position.sequence_number}
    if isinstance(position, AtTimestamp):
        return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": position.instant}
    if position in {TRIM_HORIZON, LATEST}:
        return {"ShardIteratorType": str(position)}
    raise ValueError(f"nothing follows {SHARD_END}: a closed shard has no iterator at its end")


_STARTING_POSITION = {
    "ShardIteratorType": "Type",
    "StartingSequenceNumber": "SequenceNumber",
    "Timestamp": "Timestamp",
}


def starting_position(position: Position, inclusive: bool) -> dict[str, Any]:
    """Return SubscribeToShard's StartingPosition: the same values under other names."""
    words = iterator_type(position, inclusive)
    return {_STARTING_POSITION[name]: value for name, value in words.items()}


def sequence_order(sequence_number: str) -> tuple[int, str]:
    """Return a key that sorts sequence numbers as numbers, without an int of 56 digits."""
    digits = sequence_number.lstrip("0")
    return len(digits), digits


def user_records_done(first: str, start: Position) -> int:
    """Return how many user records of the record ``first`` are already done at ``start``.

    ``first``: the sequence number of the first record of a read AT ``start``.
    """
    if not isinstance(start, AfterRecord) or start.sub_sequence_number is None:
        return 0
    is_start = first == start.sequence_number
    return start.sub_sequence_number + 1 if is_start else 0
