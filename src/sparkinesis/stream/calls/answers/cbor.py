"""Reads answers in CBOR, in the form of the AWS SDKs for Java, and writes the requests for them.

Data are bytes there, and not text in base64: a quarter fewer bytes on the way. A time is an integer
of milliseconds under tag 1 (by RFC 8949, of seconds).
"""

# What is not read here is asked for again in JSON, which says the same. So this module may refuse
# what it likes, but it reads nothing otherwise than the decoder of JSON reads the same answer:
#
# - A member that comes twice, items nested deeper than a page's, bytes behind the answer: refused.
# - A time before 1973 is refused. It is one in seconds, as some servers write it. So is a time
#   without its tag, which may be either.
# - cbor2 makes each item, and knows tags that share items, by which few bytes are millions of
#   records: what is more than the service returns is refused before.
#
# The data is taken out before, as that of JSON is: cbor2 copies the whole answer, and then each
# data, which takes as long as decoding base64. A decoder of our own, by `struct`, took a fifth less
# for records of 5 to 10 KB and no less for larger ones; it had 300 lines more.

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import cbor2
import msgspec

from sparkinesis.stream.calls.answers.guards import UnreadError
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Page
from sparkinesis.stream.position import END_OF_TIME_MS

_EPOCH = 1
"""The tag of a time."""
_LEAST_MS, _MOST_MS = 100_000_000_000, END_OF_TIME_MS // 1000 * 1000
"""From 1973 on. In seconds, the least is the year 5138."""
_DEEPEST = 8
"""Items in one another. A page has six."""
_MOST_BYTES = 4_500_000
"""The most bytes of such an answer without its data, with keys of 256 characters."""
_DATA = b"\x64Data"
_SHORT = range(0x40, 0x58)
"""The heads of bytes, from none to 23."""
_WIDTHS = {0x58: 1, 0x59: 2, 0x5A: 4, 0x5B: 8}
"""The bytes of a greater length, by the head before them."""
_MARKED = b"\x43"
"""The head of a mark, of three bytes."""


def encode_request(request: Mapping[str, str | int]) -> bytes:
    """Return the body of a request, as the SDK for Java writes it: a map without a count."""
    return cbor2.dumps(request, indefinite_containers=True)


def take_out(body: bytes | bytearray, marks: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Take the data of each record out of a page.

    Returns the page with one of ``marks`` in the place of each data, and the data. What looks like
    data within a text is taken for it: the marks then are not where data is. Raises `UnreadError`.
    """
    view = memoryview(body)
    find = body.find
    pieces: list[memoryview | bytes] = []
    data: list[bytes] = []
    at = 0
    for mark in marks:
        head = find(_DATA, at) + len(_DATA)
        if head < len(_DATA):
            break
        kind = view[head] if head < len(body) else -1
        if kind in _SHORT:
            start, size = head + 1, kind - _SHORT.start
        elif kind in _WIDTHS:
            start = head + 1 + _WIDTHS[kind]
            size = int.from_bytes(view[head + 1 : start], "big")
        else:
            raise UnreadError("data are no bytes in one piece")
        end = start + size
        if end > len(body):
            raise UnreadError("it is cut short")
        pieces += view[at:head], _MARKED, mark
        data.append(bytes(view[start:end]))
        at = end
    pieces.append(view[at:])
    return b"".join(pieces), data


def read_page(body: bytes | bytearray) -> Page:
    """Return a page, with its records as they come. Raises `UnreadError`."""
    members, times = _read(body)
    records = members.get("Records")
    if isinstance(records, list) and len(records) > MAX_RECORDS_PER_CALL:
        raise UnreadError("it has too many records")
    try:
        # bytes as a type of its own: no text is taken for data in base64.
        page = msgspec.convert(members, Page, builtin_types=(bytes,))
    except (msgspec.ValidationError, RecursionError) as error:
        raise UnreadError(str(error)) from None
    if times != sum([r.approximate_arrival_timestamp is not None for r in page.records]):
        raise UnreadError("a time has no tag 1, or something else has it")
    return page


def read_object(body: bytes | bytearray) -> dict[str, Any]:
    """Return the members of an answer that are texts or numbers. Raises `UnreadError`."""
    members, _ = _read(body)
    try:
        return msgspec.convert(members, dict[str, str | int | float | bool | None])
    except msgspec.ValidationError as error:
        raise UnreadError(str(error)) from None


def _read(body: bytes | bytearray) -> tuple[dict[str, Any], int]:
    """Return the members of an answer, and how many times are in it."""
    if len(body) > _MOST_BYTES:
        raise UnreadError("it has too much beside its data")
    times = 0

    def seconds(value: Any, _immutable: bool) -> float:
        nonlocal times
        if type(value) is not int or not _LEAST_MS <= value < _MOST_MS:
            raise ValueError
        times += 1
        return value / 1000

    stream = io.BytesIO(body)
    decoder = cbor2.CBORDecoder(
        stream,
        semantic_decoders={_EPOCH: seconds},
        max_depth=_DEEPEST,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    try:
        members = decoder.decode()
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UnreadError(f"it is no CBOR that is read here: {error!s:.200}") from None
    if not isinstance(members, dict):
        raise UnreadError("it is no map")
    if stream.tell() != len(body):
        raise UnreadError("bytes follow the answer")
    return members, times
