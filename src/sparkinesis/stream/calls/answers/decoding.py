"""Decodes GetRecords answers and events from JSON into typed values, in C.

Fields that the values do not have (``EncryptionType``, and fields that the service adds later) are
skipped.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import accumulate
from operator import lt
from typing import TypeVar

import msgspec

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.stream.calls.answers.large_data import put_back, take_out
from sparkinesis.stream.page import Event, MendedEvent, MendedPage, Page, Record
from sparkinesis.stream.position import sequence_order

_log = logging.getLogger(__name__)

_LONGEST_NUMBER = 128
"""Digits of the longest sequence number (API reference)."""

_INVALID = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders for invalid JSON and for unexpected values."""

_Fetched = TypeVar("_Fetched", Page, Event)

_MENDED = (MendedPage, MendedEvent)

_DECODER = msgspec.json.Decoder(Page)
_EVENT_DECODER = msgspec.json.Decoder(Event)


def decode_page(body: bytes | bytearray) -> Page:
    """Decode the body of a GetRecords answer.

    Raises `ServiceError`, which names the wrong field, for any other body.
    """
    try:
        page = _decode(_DECODER, body)
        mended = _put_in_order(page.records)
        return MendedPage(**msgspec.structs.asdict(page), mended=mended) if mended else page
    except _INVALID as error:
        # The first bytes show which server answered. Those of a page may hold user data.
        start = "" if body[:1] == b"{" else f" (they start with {bytes(body[:60])!r})"
        raise ServiceError(
            f"GetRecords returned {len(body)} bytes that are not a page of records{start}: "
            f"{error}. If you use a proxy or your own endpoint, check that it does not change the "
            "service's answers."
        ) from error


def _decode(
    decoder: msgspec.json.Decoder[_Fetched], body: bytes | bytearray | memoryview
) -> _Fetched:
    """Return what ``decoder`` makes of ``body``, faster if its records are large."""
    taken = take_out(body)
    if taken is not None:
        rest, data = taken
        with suppress(*_INVALID):  # the decoder tells what is invalid in the whole
            fetched = decoder.decode(rest)
            if put_back(fetched.records, [record.data for record in fetched.records], data):
                return fetched
    return decoder.decode(body)


def _put_in_order(records: list[Record]) -> int:
    """Put records in the order of their sequence numbers, each once; return how many came late.

    Raises `msgspec.ValidationError` for a sequence number that is none. Readers resume from the
    first and the last one, and batches are divided at the others.
    """
    if not records:
        return 0
    is_large = len(records) > _CHECKED_IN_FULL
    looked_at = [*records[::_OF_SO_MANY], records[-1]] if is_large else records
    numbers = [record.sequence_number for record in looked_at]
    if _is_number(numbers[0]) and _is_number(numbers[-1]) and _ascend(numbers, is_large):
        return 0
    numbers = [record.sequence_number for record in records]
    for number in numbers:
        if not _is_number(number):
            raise msgspec.ValidationError("SequenceNumber is not a number")
    orders = [sequence_order(number) for number in numbers]
    late = sum([order <= top for order, top in zip(orders[1:], accumulate(orders, max))])  # noqa: B905
    if late:  # otherwise these are numbers of several lengths
        found = dict(zip(orders, records))  # noqa: B905 - as above
        records[:] = [found[order] for order in sorted(found)]
    return late


_CHECKED_IN_FULL = 1_000
"""The most records of a page that are looked at one by one."""
_OF_SO_MANY = 4
"""Of a larger page, one of so many is looked at: to look at all takes 8 % of the time of decoding,
and what changes places or comes again does so in blocks."""


def _ascend(numbers: list[str], is_sample: bool) -> bool:
    """Return True if sequence numbers ascend; False also if that cannot be told cheaply.

    The first and the last one are numbers. Texts of one length are in the order of the numbers, and
    what is no number is hardly ever between two of them. To look at each digit as well takes twice
    the time. is_sample: True if others lie between them, so that one that comes twice in a row is
    not met twice. Sorting takes less than half the time of comparing each with the next.
    """
    length = len(numbers[0])
    return (
        length == len(numbers[-1])
        and (numbers == sorted(numbers) if is_sample else all(map(lt, numbers, numbers[1:])))
        and len("".join(numbers)) == length * len(numbers)
    )


def tell_mended(fetched: Page | Event, shard_id: str, place: object) -> None:
    """Log that the records of a page or an event had to be put in order, if so."""
    if isinstance(fetched, _MENDED):
        _log.warning(
            "The service returned records of shard %s of %s out of order or more than once, from "
            "sequence number %s on: %d of them. They are put in order, each once. Kinesis does not "
            "do this: if you use a proxy or your own endpoint, check that it does not change the "
            "service's answers.",
            shard_id,
            place,
            fetched.records[0].sequence_number,
            fetched.mended,
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER


def decode_event(payload: bytes | memoryview) -> Event:
    """Decode the payload of a SubscribeToShardEvent. Raises `CorruptEventStreamError`."""
    try:
        event = _decode(_EVENT_DECODER, payload)
        mended = _put_in_order(event.records)
        number = event.continuation_sequence_number
        if number is not None and not _is_number(number):
            raise msgspec.ValidationError("ContinuationSequenceNumber is not a number")
        return MendedEvent(**msgspec.structs.asdict(event), mended=mended) if mended else event
    except _INVALID as error:
        raise CorruptEventStreamError(
            f"The payload of an event ({len(payload)} bytes) is not valid: {error}."
        ) from error
