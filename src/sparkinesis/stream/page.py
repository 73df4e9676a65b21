"""GetRecords answers and events, decoded from JSON into typed values in C.

The field names are those of the service's API reference: GetRecords, "Response Syntax", and
SubscribeToShardEvent. Other fields (``EncryptionType``, and fields that the service adds
later) are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.public import public
from sparkinesis.stream.large_data import put_back, take_out
from sparkinesis.stream.position import END_OF_TIME_MS

_EpochSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=END_OF_TIME_MS // 1000)]
_Millis: TypeAlias = Annotated[int, msgspec.Meta(lt=END_OF_TIME_MS)]
_HashKey: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,39}\Z")]


@public
class Record(msgspec.Struct, frozen=True, gc=False, rename="pascal", kw_only=True):
    """A record as Kinesis stores it, which may be an aggregate of many user records."""

    data: bytes
    partition_key: str | None = None
    """The partition key; None for a record put without a key, which only streams with
    RecordDistributionStrategy AUTO accept."""
    sequence_number: str
    approximate_arrival_timestamp: _EpochSeconds | None = None
    """The arrival time in epoch seconds, with a precision of milliseconds."""

    @property
    def arrived_ms(self) -> int | None:
        """The arrival time in epoch milliseconds; None if the service does not return it."""
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
    """The answer of one GetRecords call: at most 10,000 records and 10 MB of data."""

    records: list[Record]
    next_shard_iterator: str | None = None
    """The iterator of the next page; None on the last page of a closed shard."""
    millis_behind_latest: _Millis | None = None
    child_shards: list[ChildShard] | None = None
    """Set on the last page of a closed shard only."""


class Event(msgspec.Struct, frozen=True, rename="pascal"):
    """An event of a subscription: the next records of the shard."""

    records: list[Record]
    continuation_sequence_number: str | None = None
    """The position after this event: the next subscription starts AFTER this number.

    Also set on an event without records. None on the last event of a closed shard."""
    millis_behind_latest: _Millis | None = None
    child_shards: list[ChildShard] | None = None
    """Set on the last event of a closed shard only."""


def is_empty_at_tip(fetched: Page | Event) -> bool:
    """Return True if a page or an event has no records because the reader is at the shard's tip."""
    return not fetched.records and not fetched.millis_behind_latest


_LONGEST_NUMBER = 128
"""Digits of the longest sequence number (API reference)."""

_INVALID = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders for invalid JSON and for unexpected values."""

_Fetched = TypeVar("_Fetched", Page, Event)

_DECODER = msgspec.json.Decoder(Page)
_EVENT_DECODER = msgspec.json.Decoder(Event)


def decode_page(body: bytes) -> Page:
    """Decode the body of a GetRecords answer.

    Raises `ServiceError`, which names the wrong field, for any other body.
    """
    try:
        page = _decode(_DECODER, body)
        _check_ends(page.records)
        return page
    except _INVALID as error:
        # The first bytes show which server answered. Those of a page may hold user data.
        start = "" if body[:1] == b"{" else f" (they start with {bytes(body[:60])!r})"
        raise ServiceError(
            f"GetRecords returned {len(body)} bytes that are not a page of records{start}: "
            f"{error}. If you use a proxy or your own endpoint, check that it does not change the "
            "service's answers."
        ) from error


def _decode(decoder: msgspec.json.Decoder[_Fetched], body: bytes | memoryview) -> _Fetched:
    """Return what ``decoder`` makes of ``body``, faster if its records are large."""
    taken = take_out(bytes(body))
    if taken is not None:
        rest, data = taken
        with suppress(*_INVALID):  # the decoder tells what is invalid in the whole
            fetched = decoder.decode(rest)
            if put_back(fetched.records, [record.data for record in fetched.records], data):
                return fetched
    return decoder.decode(body)


def _check_ends(records: Sequence[Record]) -> None:
    """Check the first and the last sequence number; raise `msgspec.ValidationError`.

    Readers resume from these two. To check all takes as long as decoding the page.
    """
    for record in (*records[:1], *records[-1:]):
        if not _is_number(record.sequence_number):
            raise msgspec.ValidationError("SequenceNumber is not a number")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER


def decode_event(payload: bytes | memoryview) -> Event:
    """Decode the payload of a SubscribeToShardEvent. Raises `CorruptEventStreamError`."""
    try:
        event = _decode(_EVENT_DECODER, payload)
        _check_ends(event.records)
        number = event.continuation_sequence_number
        if number is not None and not _is_number(number):
            raise msgspec.ValidationError("ContinuationSequenceNumber is not a number")
        return event
    except _INVALID as error:
        raise CorruptEventStreamError(
            f"The payload of an event ({len(payload)} bytes) is not valid: {error}."
        ) from error
