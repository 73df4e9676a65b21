"""Decodes GetRecords answers and events into typed values: from JSON in C, or from CBOR.

Fields that the values do not have (``EncryptionType``, and fields that the service adds later) are
skipped. The data of large records is decoded apart from the rest, and records are put in order.
"""

from __future__ import annotations

import base64
import functools
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from operator import lt
from typing import Any, Protocol, TypeVar

import msgspec
from pybase64 import b64decode

from sparkinesis.errors import CorruptEventStreamError, ServiceError
from sparkinesis.stream.calls.answers.guards import UnreadError
from sparkinesis.stream.page import (
    MAX_RECORDS_PER_CALL,
    MendedEvent,
    MendedPage,
    Page,
    Record,
    SubscribeToShardEvent,
)
from sparkinesis.stream.position import sequence_order

_log = logging.getLogger(__name__)

_LONGEST_NUMBER = 128
"""Digits of the longest sequence number (API reference)."""

_INVALID = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of decoders for invalid JSON and for unexpected values."""


class _HasRecords(Protocol):
    """A page, an event, or what else has records: values with ``data``."""

    @property
    def records(self) -> Sequence[Any]: ...


_Fetched = TypeVar("_Fetched", bound=_HasRecords)

_MENDED = (MendedPage, MendedEvent)

_DECODER = msgspec.json.Decoder(Page)
_EVENT_DECODER = msgspec.json.Decoder(SubscribeToShardEvent)


def decode_page(body: bytes | bytearray) -> Page:
    """Decode the body of a GetRecords answer.

    Raises `ServiceError`, which names the wrong field, for any other body.
    """
    try:
        page = decode_fetched(_DECODER, body)
        return _in_order(page)
    except _INVALID as error:
        # The first bytes show which server answered. Those of a page may hold user data.
        start = "" if body[:1] == b"{" else f" (they start with {bytes(body[:60])!r})"
        raise ServiceError(
            f"GetRecords returned {len(body)} bytes that are not a page of records{start}: "
            f"{error}. If you use a proxy or your own endpoint, check that it does not change the "
            "service's answers."
        ) from error


def decode_cbor_page(body: bytes | bytearray) -> Page:
    """Decode the CBOR of a GetRecords answer. Raises `UnreadError`."""
    from sparkinesis.stream.calls.answers import cbor  # noqa: PLC0415 - no start needs it

    try:
        rest, data = cbor.take_out(body, _marks())
        page = cbor.read_page(rest)
        if not _put_back(page.records, [record.data for record in page.records], data):
            raise UnreadError("data stands elsewhere than in records")
        return _in_order(page)
    except msgspec.ValidationError as error:
        raise UnreadError(str(error)) from None


def _in_order(page: Page) -> Page:
    mended = _put_in_order(page.records)
    return MendedPage(**msgspec.structs.asdict(page), mended=mended) if mended else page


def decode_event(payload: bytes | memoryview) -> SubscribeToShardEvent:
    """Decode the payload of a SubscribeToShardEvent. Raises `CorruptEventStreamError`."""
    try:
        event = decode_fetched(_EVENT_DECODER, payload)
        mended = _put_in_order(event.records)
        number = event.continuation_sequence_number
        if number is not None and not _is_number(number):
            raise msgspec.ValidationError("ContinuationSequenceNumber is not a number")
        return MendedEvent(**msgspec.structs.asdict(event), mended=mended) if mended else event
    except _INVALID as error:
        raise CorruptEventStreamError(
            f"The payload of an event ({len(payload)} bytes) is not valid: {error}."
        ) from error


def decode_fetched(
    decoder: msgspec.json.Decoder[_Fetched], body: bytes | bytearray | memoryview
) -> _Fetched:
    """Return the value that ``decoder`` makes of ``body``, sooner if its records are large.

    Raises msgspec's errors, UnicodeDecodeError and RecursionError.
    """
    taken = take_out(body)
    if taken is not None:
        rest, data = taken
        with suppress(*_INVALID):  # decoding the whole shows which byte or field is invalid
            fetched = decoder.decode(rest)
            if _put_back(fetched.records, [record.data for record in fetched.records], data):
                return fetched
    return decoder.decode(body)


_FIELD = b'"Data":"'
_LARGE = 2000
"""Bytes of a record's JSON from which its data is taken out: less takes longer so."""
_START = 8 * _LARGE
"""Bytes at the start of an answer that show how large its records are."""


@functools.cache
def _marks() -> list[bytes]:
    """Return the texts that stand in place of each record's data, in order."""
    return [number.to_bytes(3, "big") for number in range(MAX_RECORDS_PER_CALL)]


@functools.cache
def _encoded_marks() -> list[bytes]:
    return [base64.b64encode(mark) for mark in _marks()]


def take_out(body: bytes | bytearray | memoryview) -> tuple[bytes, list[bytes]] | None:
    """Take the data of each record out of an answer's JSON.

    Returns the JSON with a mark in the place of each data, and the data; None if the data is small
    or not in the form that services write, about which only a decoder of the whole can decide.

    A decoder of JSON looks at each byte of a text, and decodes base64 byte by byte. Here the end of
    the data is found as fast as memory is read, and pybase64 decodes it by the processor's vectors:
    five times as fast for data of 50 KB, the size of aggregated records.
    """
    if len(body) < _LARGE or not _is_large(bytes(body[:_START])):
        return None
    text = bytes(body) if isinstance(body, memoryview) else body
    view = memoryview(text)
    find = text.find
    pieces: list[bytes | bytearray] = []
    data: list[bytes] = []
    at = 0
    try:
        for mark in _encoded_marks():
            start = find(_FIELD, at) + len(_FIELD)
            if start < len(_FIELD):
                break
            end = find(b'"', start)
            if end < 0:
                return None
            pieces.append(text[at:start])
            pieces.append(mark)
            data.append(b64decode(view[start:end], None, True))
            at = end
    except ValueError:  # no base64, or with JSON's escapes in it
        return None
    pieces.append(text[at:])
    return b"".join(pieces), data


def _put_back(records: Sequence[Any], marks: Sequence[bytes], data: list[bytes]) -> bool:
    """Set the data of ``records``; return False if ``marks``, their present data, are not in order.

    This happens if an answer has data elsewhere than in its records, or in another form.
    """
    if marks != _marks()[: len(data)]:
        return False
    deque(map(msgspec.structs.force_setattr, records, repeat("data"), data), maxlen=0)
    return True


def _is_large(start: bytes) -> bool:
    """Return True if the records at the start of an answer have `_LARGE` bytes each on average."""
    return 0 < start.count(_FIELD) * _LARGE <= len(start)


_CHECKED_IN_FULL = 1_000
"""The most records of a page whose order is checked one by one."""
_SAMPLED = 4
"""Of a larger page, the order of each fourth record is checked."""


# Kinesis returns the records of a shard in order; a proxy may return some in each other's place, or
# twice (docs/other-servers.md). Readers resume from the first and the last record of a page, and
# batches are divided at the others, so that one number out of its place would skip records, or
# repeat them, without any error. So each page is checked, although almost none is ever mended:
#
# - Looking at the digits of each number, and sorting and counting the numbers, made a page of 1,000
#   records take two fifths longer to decode. Texts of one length are in the order of their numbers:
#   only the first and the last number are looked at digit by digit, and each is compared with the
#   next one as text.
# - In a larger page even that takes 8 % of the time of decoding. So one number of four is checked,
#   by sorting: of a sample that is in order already, that takes less than half the time of
#   comparing neighbours. Two neighbours that change places between the samples are not seen; but
#   what changes places, or comes again, does so in blocks, and those are.
# - Whatever the quick check cannot decide, such as numbers of several lengths, is decided below it
#   by `sequence_order`. Dropping that part for speed would take "9", "10" for disorder.
def _put_in_order(records: list[Record]) -> int:
    """Put records in the order of their sequence numbers, each once; return how many came late.

    Raises `msgspec.ValidationError` for a sequence number that is not a number.
    """
    if not records:
        return 0
    is_large = len(records) > _CHECKED_IN_FULL
    checked = [*records[::_SAMPLED], records[-1]] if is_large else records
    numbers = [record.sequence_number for record in checked]
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


def _ascend(numbers: list[str], is_sample: bool) -> bool:
    """Return True if sequence numbers ascend; False also if that cannot be decided cheaply.

    The first and the last one are numbers. A text that is no number is hardly ever between two of
    them. is_sample: True if other numbers lie between these, so that a number that comes twice in a
    row is not met twice.
    """
    length = len(numbers[0])
    return (
        length == len(numbers[-1])
        and (numbers == sorted(numbers) if is_sample else all(map(lt, numbers, numbers[1:])))
        and len("".join(numbers)) == length * len(numbers)
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER


def warn_if_mended(fetched: Page | SubscribeToShardEvent, shard_id: str, place: object) -> None:
    """Log a warning if the records of a page or an event had to be put in order."""
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


_RECORD_FRAME = len(
    '{"SequenceNumber":"","ApproximateArrivalTimestamp":1.790000000123E9,"Data":"",'
    '"PartitionKey":""},'
)


_CBOR_FRAME = 80
"""Bytes around the sequence number, the data and the key of a record in CBOR."""


def data_size(size: int, page: Page, *, is_cbor: bool = False) -> int:
    """Estimate the bytes of the records in an answer of ``size`` bytes, without a loop over them.

    What is around the data is about as long for each record; in JSON, data is in base64, 4 bytes
    for 3.
    """
    if not page.records:
        return 0
    first = page.records[0]
    key = len(first.partition_key or "")
    frame = (_CBOR_FRAME if is_cbor else _RECORD_FRAME) + len(first.sequence_number) + key
    data = max(size - len(page.records) * frame, 0)
    return (data if is_cbor else data * 3 // 4) + len(page.records) * key
