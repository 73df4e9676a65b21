"""Decodes GetRecords answers and events from JSON into typed values, in C.

Fields that the values do not have (``EncryptionType``, and fields that the service adds later) are
skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.stream.calls.answers.large_data import put_back, take_out
from sparkinesis.stream.page import Event, Page, Record

_LONGEST_NUMBER = 128
"""Digits of the longest sequence number (API reference)."""

_INVALID = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders for invalid JSON and for unexpected values."""

_Fetched = TypeVar("_Fetched", Page, Event)

_DECODER = msgspec.json.Decoder(Page)
_EVENT_DECODER = msgspec.json.Decoder(Event)


def decode_page(body: bytes | bytearray) -> Page:
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
