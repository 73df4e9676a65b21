"""The first records of a cursor: those that lie before its position are dropped.

The service begins a page or a subscription exactly at the position that it is asked for. Some other
servers begin earlier, at the shard's oldest record for instance, and each renewal of a subscription
then repeats all that was read before.

The rule for an instant is the service's own, as its API reference tells it of AT_TIMESTAMP: reading
begins with the first record that arrived at the instant or later, and everything behind that record
follows, whatever its arrival time. So only the records in front of that first one are dropped. The
same records are dropped at every replay, and a batch that begins behind a record loses none by its
arrival time.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from sparkinesis.stream.address import StreamAddress, place_of
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position, sequence_order

if TYPE_CHECKING:
    from sparkinesis.stream.calls.client import Fetched
    from sparkinesis.stream.page import Record

_log = logging.getLogger(__name__)

_WHOLE_SECOND_MS = 1_000
"""Servers and clients (boto3 of 2024) exist that cut an instant to its second."""


class EarlyRecordFilter:
    """Drops what a server gives before a cursor's position; used by one thread at a time.

    One is for the whole life of a cursor: it also sees where the cursor goes on behind an iterator
    that has expired, or behind a subscription that is over.
    """

    def __init__(
        self, address: StreamAddress, shard_id: str, position: Position, *, inclusive: bool
    ) -> None:
        """``inclusive``: the record of an `AfterRecord` position belongs to what is read."""
        self._address = address
        self._shard_id = shard_id
        self._floor: tuple[int, str] | None = None
        """The sequence number that everything lies behind, as `sequence_order` has it."""
        self._floor_is_wanted = False
        self._since_ms = position.ms if isinstance(position, AtTimestamp) else None
        """Set until a record has come that arrived then or later."""
        if isinstance(position, AfterRecord):
            self._floor = sequence_order(position.sequence_number)
            self._floor_is_wanted = inclusive or position.sub_sequence_number is not None

    def apply(self, fetched: Fetched) -> Fetched:
        """A page or event without records that lie before the position, or that came before."""
        records = fetched.page.records
        if not records:
            return fetched
        kept = self._since(self._behind_floor(records))
        last = sequence_order(records[-1].sequence_number)
        if self._floor is None or last >= self._floor:
            self._floor, self._floor_is_wanted = last, False
        if kept is records:
            return fetched
        return replace(fetched, page=msgspec.structs.replace(fetched.page, records=list(kept)))

    def rewind(self, sequence_number: str) -> None:
        """Take what lies behind this record once more: it is fetched again."""
        self._floor, self._floor_is_wanted = sequence_order(sequence_number), False

    def _behind_floor(self, records: Sequence[Record]) -> Sequence[Record]:
        floor = self._floor
        if floor is None:
            return records
        first = sequence_order(records[0].sequence_number)
        if first > floor or (first == floor and self._floor_is_wanted):
            return records
        cut = bisect.bisect_left if self._floor_is_wanted else bisect.bisect_right
        count = cut(records, floor, key=lambda record: sequence_order(record.sequence_number))
        number = records[0].sequence_number
        _warn(
            self._address,
            self._shard_id,
            f"from {number} on, which is not behind the sequence number asked for",
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
                f"that arrived at {arrival:.3f} (epoch seconds), before the instant asked for",
            )
        return records[count:]


def _may_be_since(record: Record, since_ms: int) -> bool:
    """Whether a record may have arrived at ``since_ms`` (epoch ms) or later.

    A record without an arrival time may have, and so may one whose time is told in whole seconds.
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
"""Endpoints of which this process has told."""


def _warn(address: StreamAddress, shard_id: str, what: str) -> None:
    place = place_of(address.region, address.endpoint)
    with _lock:
        if place in _warned:
            return
        _warned.add(place)
    _log.warning(
        "Kinesis in %s began to read shard %s of stream %r elsewhere than asked: it gave records "
        "%s. They are dropped, here and wherever it does so again; this is told once. The service "
        "does not do this: look for a newer version of the server that answers there.",
        place,
        shard_id,
        address.name,
        what,
    )
