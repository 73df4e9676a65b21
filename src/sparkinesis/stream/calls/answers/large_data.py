"""Takes the data of large records out of an answer before the rest is decoded from JSON.

A decoder of JSON looks at each byte of a text, and decodes base64 byte by byte. Here the end of the
data is found as fast as memory is read, and pybase64 decodes it by the processor's vectors: five
times as fast for data of 50 KB, the size of aggregated records. Small data would take longer so.
"""

from __future__ import annotations

import base64
import functools
from collections import deque
from collections.abc import Sequence
from itertools import repeat

import msgspec
from pybase64 import b64decode

_FIELD = b'"Data":"'
_LARGE = 2000
"""Bytes of a record's JSON from which its data is taken out: less takes longer so."""
_SAMPLE = 8 * _LARGE
"""Bytes at the start of an answer whose number of records tells the size of the others."""
_MOST_RECORDS = 10_000
"""The most records of an answer (API reference of GetRecords)."""


@functools.cache
def _marks() -> list[bytes]:
    """Return what stands in place of each record's data, in order."""
    return [number.to_bytes(3, "big") for number in range(_MOST_RECORDS)]


@functools.cache
def _encoded_marks() -> list[bytes]:
    return [base64.b64encode(mark) for mark in _marks()]


def take_out(body: bytes | bytearray | memoryview) -> tuple[bytes, list[bytes]] | None:
    """Take the data of each record out of an answer's JSON.

    Returns the JSON with a mark in the place of each data, and the data; None if the data is small
    or in another form than services write: only a decoder of the whole can say what that is.
    """
    if not _is_large(bytes(body[:_SAMPLE])):
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


def put_back(records: Sequence[msgspec.Struct], marks: Sequence[bytes], data: list[bytes]) -> bool:
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
