"""One GetRecords answer, or one event, decoded from JSON into typed values in a single pass in C.

The field names are those of the service's API reference: GetRecords, "Response Syntax", and
SubscribeToShardEvent. Fields that reading does not need (``EncryptionType``, and whatever the
service adds later) are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.public import public
from sparkinesis.stream.position import END_OF_TIME_MS

_EpochSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=END_OF_TIME_MS // 1000)]
_Millis: TypeAlias = Annotated[int, msgspec.Meta(lt=END_OF_TIME_MS)]
_HashKey: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,39}\Z")]


@public
class Record(msgspec.Struct, frozen=True, gc=False, rename="pascal", kw_only=True):
    """A record as Kinesis stores it; a producer may have packed many user records into it."""

    data: bytes
    partition_key: str | None = None
    """None where the producer gave none, which streams allow that distribute records themselves
    (RecordDistributionStrategy AUTO)."""
    sequence_number: str
    approximate_arrival_timestamp: _EpochSeconds | None = None
    """Epoch seconds; the service means whole milliseconds."""

    @property
    def arrived_ms(self) -> int | None:
        """When the record arrived, in epoch milliseconds; None if the service does not tell."""
        seconds = self.approximate_arrival_timestamp
        return None if seconds is None else round(seconds * 1000)


class HashKeyRange(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The part of the 128-bit hash space that a shard owns: decimal text, both ends inclusive."""

    starting_hash_key: _HashKey
    ending_hash_key: _HashKey


class ChildShard(msgspec.Struct, frozen=True, rename="pascal"):
    """A shard that continues a closed one, as the closed shard's last page names it."""

    shard_id: str
    parent_shards: list[str]
    hash_key_range: HashKeyRange

    @property
    def starting_hash_key(self) -> str:
        return self.hash_key_range.starting_hash_key

    @property
    def ending_hash_key(self) -> str:
        return self.hash_key_range.ending_hash_key


class Page(msgspec.Struct, frozen=True, rename="pascal"):
    """What one GetRecords call returns: at most 10,000 records and 10 MB of data."""

    records: list[Record]
    next_shard_iterator: str | None = None
    """None when the shard is closed and this page holds its last records."""
    millis_behind_latest: _Millis | None = None
    child_shards: list[ChildShard] | None = None
    """Given with the last page of a closed shard only."""


class Event(msgspec.Struct, frozen=True, rename="pascal"):
    """What a subscription gives at a time."""

    records: list[Record]
    continuation_sequence_number: str | None = None
    """Reading goes on exactly behind this event AFTER this number, also if it has no records.

    None with the last event of a closed shard."""
    millis_behind_latest: _Millis | None = None
    child_shards: list[ChildShard] | None = None
    """Given with the last event of a closed shard only."""


def is_empty_at_tip(fetched: Page | Event) -> bool:
    """Whether a page or an event has no records, since the reader has read all there is."""
    return not fetched.records and not fetched.millis_behind_latest


_LONGEST_NUMBER = 128
"""Digits of a sequence number, by the API reference."""

_DECODER = msgspec.json.Decoder(Page)
_EVENT_DECODER = msgspec.json.Decoder(Event)


def decode_page(body: bytes) -> Page:
    """Decode the body of a GetRecords answer.

    Raises `ServiceError` for a body that is not one, saying which field is wrong.
    """
    try:
        page = _DECODER.decode(body)
        _check_ends(page.records)
        return page
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # The beginning of anything else tells what answered; that of a page may hold user data.
        begin = "" if body[:1] == b"{" else f", which begin with {bytes(body[:60])!r}"
        raise ServiceError(
            f"GetRecords was answered by {len(body)} bytes that are not a page of records{begin}: "
            f"{error}. If a proxy or an endpoint of your own stands between, check that it passes "
            "the service's answers on unchanged."
        ) from error


def _check_ends(records: Sequence[Record]) -> None:
    """Where reading goes on must be a number; those between are looked at where they matter.

    To look at all of them takes as long as decoding all the rest.
    """
    for record in (*records[:1], *records[-1:]):
        if not _is_number(record.sequence_number):
            raise msgspec.ValidationError("SequenceNumber is no number")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER


def decode_event(payload: bytes | memoryview) -> Event:
    """Decode the payload of a SubscribeToShardEvent. Raises `CorruptEventStreamError`."""
    try:
        event = _EVENT_DECODER.decode(payload)
        _check_ends(event.records)
        number = event.continuation_sequence_number
        if number is not None and not _is_number(number):
            raise msgspec.ValidationError("ContinuationSequenceNumber is no number")
        return event
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptEventStreamError(
            f"An event's payload of {len(payload)} bytes is none: {error}."
        ) from error
