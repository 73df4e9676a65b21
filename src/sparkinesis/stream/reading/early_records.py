"""A filter for records that a server returns from before a cursor's position.

Kinesis starts a page or a subscription exactly at the requested position. Some other servers start
earlier, for instance at the shard's oldest record, so that each renewal of a subscription repeats
all records.

The rule for an instant is that of the API reference for AT_TIMESTAMP: reading starts with the first
record that arrived at the instant or later, and includes all records after that one, whatever their
arrival times. So the filter drops only the records before that first one. Every replay drops the
same records, and a batch that starts after a record loses none because of its arrival time.

A record that comes behind later ones was mostly returned before, and is dropped. If it was not, two
pages or events have changed places. Such an event was once dropped as if it had been returned; now
the filter keeps what was returned (`_Span`), and raises `OutOfOrderError`.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress, place_of
from sparkinesis.stream.position import (
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    Sentinel,
    sequence_order,
)

if TYPE_CHECKING:
    from sparkinesis.stream.page import Fetched, Record

_log = logging.getLogger(__name__)

_WHOLE_SECOND_MS = 1_000
"""Some servers and clients (boto3 of 2024) truncate an instant to its second."""


_Order = tuple[int, str]
"""A sequence number in the form of `sequence_order`."""

_MOST_SPANS = 64
"""The most pages that are remembered: what has changed places is close together."""


class OutOfOrderError(ServiceError):
    """Records came behind later ones of their shard, and were not returned before."""

    def __init__(self, text: str, resume_at: AfterRecord | AtTimestamp | Sentinel) -> None:
        super().__init__(text)
        self.resume_at = resume_at
        """The position behind the last record before them: reading resumes there, in order."""


class _Span(NamedTuple):
    """The records of a page that were returned."""

    first: _Order
    last: _Order
    last_number: str


class EarlyRecordFilter:
    """Drops records from before a cursor's position. For one thread at a time.

    A filter lasts as long as its cursor: it also covers the positions at which the cursor resumes
    after an expired iterator or an ended subscription.
    """

    def __init__(
        self, address: StreamAddress, shard_id: str, position: Position, *, inclusive: bool
    ) -> None:
        """``inclusive``: the record of an `AfterRecord` position is read too."""
        self._address = address
        self._shard_id = shard_id
        self._floor: _Order | None = None
        """The sequence number that all further records exceed, in the form of `sequence_order`."""
        self._includes_floor = False
        self._since_ms = position.ms if isinstance(position, AtTimestamp) else None
        """The instant at which reading starts; None once a record has arrived at it or later."""
        if isinstance(position, AfterRecord):
            self._floor = sequence_order(position.sequence_number)
            self._includes_floor = inclusive or position.sub_sequence_number is not None
        self._base = position
        """The position behind which ``_spans`` are all that was returned."""
        self._spans: tuple[_Span, ...] = ()
        """The records that were returned behind it, in order."""

    def apply(self, fetched: Fetched) -> Fetched:
        """Return the page or event without early records, and without repeated ones.

        Raises `OutOfOrderError`.
        """
        records = fetched.page.records
        if not records:
            return fetched
        kept = self._since(self._behind_floor(records))
        last = sequence_order(records[-1].sequence_number)
        if self._floor is None or last >= self._floor:
            self._floor, self._includes_floor = last, False
        if kept:
            first, number = kept[0].sequence_number, kept[-1].sequence_number
            self._add(_Span(sequence_order(first), sequence_order(number), number))
        if kept is records:
            return fetched
        return replace(fetched, page=msgspec.structs.replace(fetched.page, records=list(kept)))

    def rewind(self, sequence_number: str) -> None:
        """Accept the records after this one again: the cursor fetches them again."""
        floor = sequence_order(sequence_number)
        self._floor, self._includes_floor = floor, False
        self._spans = tuple(
            span if span.last <= floor else _Span(span.first, floor, sequence_number)
            for span in self._spans
            if span.first <= floor
        )

    def _add(self, span: _Span) -> None:
        if len(self._spans) == _MOST_SPANS:
            self._base = AfterRecord(self._spans[0].last_number)
            self._spans = self._spans[1:]
        self._spans = (*self._spans, span)

    def _require_returned(self, records: Sequence[Record]) -> None:
        """Raise `OutOfOrderError` if one of some early records should have been returned."""
        base = self._base
        lowest = sequence_order(base.sequence_number) if isinstance(base, AfterRecord) else None
        for record in records:
            order = sequence_order(record.sequence_number)
            place = bisect.bisect_right(self._spans, order, key=lambda span: span.first) - 1
            if lowest is not None and order <= lowest:
                continue
            if place >= 0 and order <= self._spans[place].last:
                continue
            if place < 0 and isinstance(base, AtTimestamp):
                arrived_ms = record.arrived_ms
                if arrived_ms is None or arrived_ms < base.ms + _WHOLE_SECOND_MS:
                    continue
            at = base if place < 0 else AfterRecord(self._spans[place].last_number)
            assert not isinstance(at, FromApplication), "no position of a reader"
            raise OutOfOrderError(
                f"The records of shard {self._shard_id} of {self._address} came out of order: "
                f"sequence number {record.sequence_number} came behind "
                f"{self._spans[-1].last_number}. They are read again from {at} on. Kinesis does "
                "not do this: if you use a proxy or your own endpoint, check that it does not "
                "change the service's answers.",
                at,
            )

    def _behind_floor(self, records: Sequence[Record]) -> Sequence[Record]:
        floor = self._floor
        if floor is None:
            return records
        first = sequence_order(records[0].sequence_number)
        if first > floor or (first == floor and self._includes_floor):
            return records
        cut = bisect.bisect_left if self._includes_floor else bisect.bisect_right
        count = cut(records, floor, key=lambda record: sequence_order(record.sequence_number))
        if self._spans:
            self._require_returned(records[:count])
        number = records[0].sequence_number
        _warn(
            self._address,
            self._shard_id,
            f"from sequence number {number} on, which does not follow the requested one",
        )
        return records[count:]

    def _since(self, records: Sequence[Record]) -> Sequence[Record]:
        since_ms = self._since_ms
        if since_ms is None or not records:
            return records
        count = next(
            (at for at, record in enumerate(records) if _may_be_since(record, since_ms)),
            len(records),
        )
        if count < len(records):
            self._since_ms = None
        if not count:
            return records
        arrival = records[0].approximate_arrival_timestamp
        if arrival is not None and arrival * 1000 < since_ms - _WHOLE_SECOND_MS:
            _warn(
                self._address,
                self._shard_id,
                f"that arrived at {arrival:.3f} (epoch seconds), before the requested instant",
            )
        return records[count:]


def _may_be_since(record: Record, since_ms: int) -> bool:
    """Return True if a record may have arrived at ``since_ms`` (epoch ms) or later.

    This includes a record without an arrival time, and a record in the second of ``since_ms`` whose
    arrival time has whole seconds only.
    """
    arrival = record.approximate_arrival_timestamp
    if arrival is None:
        return True
    arrival_ms = round(arrival * 1000)
    if arrival_ms % _WHOLE_SECOND_MS == 0:
        arrival_ms += _WHOLE_SECOND_MS - 1
    return arrival_ms >= since_ms


_lock = threading.Lock()
_warned: set[str] = set()
"""The endpoints that this process has warned about."""


def _warn(address: StreamAddress, shard_id: str, what: str) -> None:
    place = place_of(address.region, address.endpoint, address.credentials.profile)
    with _lock:
        if place in _warned:
            return
        _warned.add(place)
    _log.warning(
        "The server in %s did not start to read shard %s of stream %r at the requested position: "
        "it returned records %s. These records are dropped, now and in future; this warning is "
        "logged once. Kinesis does not do this: try a newer version of this server.",
        place,
        shard_id,
        address.name,
        what,
    )
