"""A user record as an object that costs little to make."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.public import public

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.objects import Make

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ARRIVAL = "approximate_arrival_timestamp"

_Cls = TypeVar("_Cls", bound=type)


def instant(seconds: float) -> datetime:
    """Return the time of epoch seconds, in UTC, to the millisecond."""
    return after_us(round(seconds * 1000) * 1000)


def after_us(us: int) -> datetime:
    """Return the time of epoch microseconds, in UTC."""
    return _EPOCH + timedelta(microseconds=us)


def _with_instants(cls: _Cls) -> _Cls:
    """Make the arrival time a property: a `datetime` is made when it is asked for.

    The field may hold epoch seconds. A `datetime` for each record would take more time than all
    else of the record.
    """
    field: MemberDescriptorType = vars(cls)[_ARRIVAL]

    def arrival(self: Any) -> datetime | None:
        """The time in UTC, to the millisecond; None if the service gave none."""
        at: datetime | float | None = field.__get__(self)
        return instant(at) if isinstance(at, (int, float)) else at

    setattr(cls, _ARRIVAL, property(arrival))
    return cls


@public
@_with_instants
class UserRecord(msgspec.Struct, frozen=True, gc=False):
    """A user record: one record as its producer put it, after de-aggregation."""

    data: bytes
    partition_key: str | None
    """The key; None if put without one, on a stream that distributes records itself."""
    sequence_number: str
    sub_sequence_number: int
    """0 to n-1 for the user records of an aggregated record; 0 for any other record."""
    approximate_arrival_timestamp: datetime | None
    """The time in UTC, to the millisecond; None if the service gave none."""
    explicit_hash_key: str | None
    shard_id: str

    @property
    def position(self) -> ExtendedSequenceNumber:
        return ExtendedSequenceNumber(self.sequence_number, self.sub_sequence_number)

    # msgspec's own methods would take epoch seconds for another time than their `datetime`.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={value!r}" for name, value in self.__rich_repr__()])
        return f"{type(self).__name__}({fields})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return list(zip(self.__struct_fields__, self._values(), strict=True))

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__struct_fields__])


make_user_record = cast("Make[UserRecord]", UserRecord)
"""The class as a function whose arrival time may be epoch seconds."""


def arrived_ms(record: UserRecord) -> int | None:
    """Return the arrival time in epoch milliseconds; None if it is not known."""
    at = record.approximate_arrival_timestamp
    return None if at is None else (at - _EPOCH) // timedelta(milliseconds=1)
