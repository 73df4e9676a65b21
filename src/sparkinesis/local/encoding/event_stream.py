"""Encoder of AWS event stream messages, which frame the response of SubscribeToShard.

A message is a prelude (its own length and that of its headers, 4 bytes each, and their CRC32), the
headers, the payload, and the CRC32 of everything before. Integers are big-endian. All headers here
are strings. Source: https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from zlib_ng.zlib_ng import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7
_LENGTHS = struct.Struct(">II")
_CRC = struct.Struct(">I")
_AROUND = _LENGTHS.size + 2 * _CRC.size


def event(kind: str, content_type: str, payload: bytes) -> bytes:
    return message(
        {":event-type": kind, ":content-type": content_type, ":message-type": "event"}, payload
    )


def exception(code: str, content_type: str, payload: bytes) -> bytes:
    return message(
        {":exception-type": code, ":content-type": content_type, ":message-type": "exception"},
        payload,
    )


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    return framed(b"".join(_header(name, value) for name, value in headers.items()), payload)


def framed(head: bytes, payload: bytes) -> bytes:
    """Return a message with these packed headers."""
    lengths = _LENGTHS.pack(_AROUND + len(head) + len(payload), len(head))
    front = lengths + _CRC.pack(crc32(lengths)) + head
    return b"".join((front, payload, _CRC.pack(crc32(payload, crc32(front)))))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(f">B{len(key)}sBH", len(key), key, _STRING, len(text)) + text
