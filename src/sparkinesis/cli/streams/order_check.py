"""Finds where a field of the data breaks the order of its key: what `tail --check-order` prints.

A key has an order within a shard, and from a shard to those that a split or a merge makes of it.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from sparkinesis.errors import listed, printable

if TYPE_CHECKING:
    from sparkinesis.worker.batches.user_record import UserRecord

MOST_KEYS = 100_000
"""The most keys whose last values are kept: those that were read last."""
MOST_RECENT = 100_000
"""The number of user records among which a repeat is found."""

Key: TypeAlias = str | int | None
Value: TypeAlias = int | float | str | datetime

_FRACTION = re.compile(r"(?<=\.)([0-9]{1,6})[0-9]*")
_MOST_DIGITS = 100


class BreakKind(Enum):
    """What is wrong with a record."""

    BEHIND = "behind"
    """Its value is less than one before."""
    GAP = "gap"
    """It skips numbers."""
    REPEAT = "repeat"
    """It was read before."""
    ELSEWHERE = "elsewhere"
    """Its key is in another shard beside this one, too. Said once for a key and a shard."""


class RecordPlace(msgspec.Struct, frozen=True):
    """Where a user record is, and what it has in the field."""

    shard: str
    sequence_number: str
    sub_sequence_number: int
    value: int | float | str

    def __str__(self) -> str:
        return f"{self.shard} {self.sequence_number}:{self.sub_sequence_number}"


class Break(msgspec.Struct, frozen=True):
    """A record that is not where the order of its key has it."""

    kind: BreakKind
    key: Key
    record: RecordPlace
    other: RecordPlace
    """The record of the greatest value before; of a repeat, the first one."""

    def as_object(self, stream: str) -> dict[str, Any]:
        """Return the object for programs."""
        return {
            "kind": self.kind.value,
            "stream": stream,
            "key": self.key,
            **msgspec.structs.asdict(self.record),
            "other": msgspec.structs.asdict(self.other),
        }

    def line(self, name: str) -> str:
        """Return the text for people. ``name``: of the field."""
        value, other = (printable(str(one.value)[:100]) for one in (self.record, self.other))
        said = {
            BreakKind.BEHIND: f"is behind {other}, of {self.other}",
            BreakKind.GAP: f"follows {other}, of {self.other}",
            BreakKind.REPEAT: f"repeats {self.other}",
            BreakKind.ELSEWHERE: f"has no order with {other}, of {self.other}",
        }
        key = printable("-" if self.key is None else str(self.key)[:256])
        return f"{self.kind.value} {self.record} key {key}: {name} {value} {said[self.kind]}"


@dataclass
class Summary:
    """What was read and found."""

    counts: bool = False
    """The field is a counter, so that a gap would have been seen."""
    records: int = 0
    without_value: int = 0
    """Records whose data is not JSON, lacks a field, or has another type of value in it."""
    found: dict[BreakKind, int] = field(default_factory=lambda: dict.fromkeys(BreakKind, 0))
    missing: int = 0
    """Numbers that were skipped, and did not come later."""
    keys_forgotten: int = 0

    @property
    def is_well(self) -> bool:
        """True if no record is out of order, and some had a value, if there were any."""
        is_blind = 0 < self.records == self.without_value
        return not is_blind and not any(self.found.values())

    def as_object(self, stream: str) -> dict[str, Any]:
        """Return the object for programs."""
        return {
            "kind": "summary",
            "stream": stream,
            "records": self.records,
            "without_value": self.without_value,
            **{kind.value: count for kind, count in self.found.items()},
            "missing": self.missing,
            "keys_forgotten": self.keys_forgotten,
        }

    def text(self, name: str) -> str:
        """Return the sentence for people. ``name``: of the field."""
        kinds = [
            f"{self.found[kind]:,} {kind.value}"
            for kind in BreakKind
            if self.counts or kind is not BreakKind.GAP
        ]
        text = f"Read {self.records:,} user records: {listed(kinds)}"
        if self.counts:
            text += f"; {self.missing:,} numbers did not come"
        if self.without_value:
            text += f"; {self.without_value:,} without a number or a text to compare as {name}"
        if self.keys_forgotten:
            text += f"; {self.keys_forgotten:,} keys were forgotten, those not read for longest"
        return f"{text}."


@dataclass
class _OfKey:
    """What was read of a key."""

    first: Value
    greatest: dict[str, tuple[Any, RecordPlace]] = field(default_factory=dict)
    """The greatest value in each shard and its ancestors."""
    missing: int = 0
    is_in_line: bool = True
    """It is in no shards side by side, so that a number that is skipped is missing."""


class OrderCheck:
    """Compares the user records of a stream with those that were read before."""

    def __init__(self, name: str, *, gaps: bool = False, per: str | None = None) -> None:
        """Prepare to read a field: ``seq`` or, in an object ``meta``, ``meta.seq``.

        gaps: the field counts the records of a key by one. per: the field by which records belong
        together; None: by their partition key.
        """
        self.summary = Summary(gaps)
        self._name = name
        self._gaps = gaps
        self._per = per
        self._keys: OrderedDict[Key, _OfKey] = OrderedDict()
        self._parents: dict[str, Sequence[str]] = {}
        self._recent: OrderedDict[tuple[Key, object], RecordPlace] = OrderedDict()

    def breaks(self, records: Sequence[UserRecord], parents: Sequence[str]) -> Iterator[Break]:
        """Yield what is wrong with the next records of a shard. parents: of the shard."""
        for record in records:
            self._parents[record.shard_id] = parents
            self.summary.records += 1
            parsed = _parsed(record.data)
            given = _field(parsed, self._name)
            key = record.partition_key if self._per is None else _field(parsed, self._per)
            value = comparable(given)
            is_of_kind = isinstance(value, int) if self._gaps else value is not None
            has_key = isinstance(key, str | int) or self._per is None
            if not (is_of_kind and has_key):
                self.summary.without_value += 1
                continue
            at = record.shard_id, record.sequence_number, record.sub_sequence_number
            identity = value if self._gaps else _digest(record.data)
            for one in self._compared(key, value, RecordPlace(*at, given), identity):
                self.summary.found[one.kind] += 1
                yield one

    def _compared(
        self, key: Key, value: Any, place: RecordPlace, identity: object
    ) -> Iterator[Break]:
        of_key = self._of(key, value)
        shard = place.shard
        if shard not in of_key.greatest:
            line = self._ancestors(shard)
            beside = [one for other, one in of_key.greatest.items() if other not in line]
            above = [one for other, one in of_key.greatest.items() if other in line]
            if above:
                of_key.greatest[shard] = max(above, key=lambda one: one[0])
            if beside:
                of_key.is_in_line = False
                self._miss(of_key, -of_key.missing)
                yield Break(BreakKind.ELSEWHERE, key, place, beside[0][1])
        greatest, other = of_key.greatest.get(shard, (value, place))
        if not _are_comparable(value, greatest):
            self.summary.without_value += 1
            return
        first = self._recent.setdefault((key, identity), place)
        if len(self._recent) > MOST_RECENT:
            self._recent.popitem(last=False)
        if first is not place:
            yield Break(BreakKind.REPEAT, key, place, first)
        elif value < greatest:
            yield Break(BreakKind.BEHIND, key, place, other)
            if of_key.missing and value > of_key.first:
                self._miss(of_key, -1)
        elif self._gaps and of_key.is_in_line and value > greatest + 1:
            yield Break(BreakKind.GAP, key, place, other)
            self._miss(of_key, value - greatest - 1)
        if value > greatest or other is place:
            of_key.greatest[shard] = value, place

    def _of(self, key: Key, value: Value) -> _OfKey:
        found = self._keys.setdefault(key, _OfKey(value))
        self._keys.move_to_end(key)
        if len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
            self.summary.keys_forgotten += 1
        return found

    def _miss(self, of_key: _OfKey, count: int) -> None:
        of_key.missing += count
        self.summary.missing += count

    def _ancestors(self, shard: str) -> Sequence[str]:
        """Return the shards before one, each once: a merge may bring two parts together again."""
        found = [*self._parents[shard]]
        for each in found:
            found += [one for one in self._parents.get(each, ()) if one not in found]
        return found


def _parsed(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _field(parsed: Any, name: str) -> Any:
    for part in name.split("."):
        parsed = parsed.get(part) if isinstance(parsed, dict) else None
    return parsed


def comparable(given: object) -> Value | None:
    """Return what a value is compared by; None if it has no order.

    A text of digits is a number, and an instant with a time zone is one instant in each of its
    forms. Other texts have the order of their characters.
    """
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    if not isinstance(given, str):
        return given
    if given.isascii() and given.isdigit() and len(given) <= _MOST_DIGITS:
        return int(given)
    # Python 3.10 reads neither a trailing Z nor a fraction of one, two, four or five digits.
    text = _FRACTION.sub(lambda found: found[1].ljust(6, "0"), re.sub(r"[zZ]$", "+00:00", given))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return given
    return given if instant.tzinfo is None else instant


def _are_comparable(one: Value, other: Value) -> bool:
    kinds = [int if isinstance(each, float) else type(each) for each in (one, other)]
    return kinds[0] is kinds[1]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
