"""Opaque, self-contained tokens: shard iterators, receipt handles, the NextToken of listings.

A token has a checksum, to distinguish a mangled or invented token from an expired one. It looks
like the service's: base64 that begins with AAAAAAAAAAE, at most 512 characters.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TypeVar

import msgspec

_PREFIX = b"\0\0\0\0\0\0\0\1"
_CHECK_BYTES = 8

T = TypeVar("T", bound=msgspec.Struct)


class ShardIterator(msgspec.Struct, array_like=True, frozen=True):
    """A position in a shard. stream_created distinguishes streams of the same name.

    empty_pages: how many empty responses to return before records.
    """

    issued_ms: int
    region: str
    stream: str
    stream_created: int
    shard: str
    position: int
    empty_pages: int = 0


class ListShardsToken(msgspec.Struct, array_like=True, frozen=True):
    issued_ms: int
    region: str
    stream: str
    stream_created: int
    after_shard: str
    filter_type: str
    filter_shard: str
    filter_ms: int


class ListStreamsToken(msgspec.Struct, array_like=True, frozen=True):
    issued_ms: int
    after_stream: str


class ListConsumersToken(msgspec.Struct, array_like=True, frozen=True):
    issued_ms: int
    stream_arn: str
    after_consumer: str


class ListQueuesToken(msgspec.Struct, array_like=True, frozen=True):
    issued_ms: int
    after_queue: str


class ReceiptHandle(msgspec.Struct, array_like=True, frozen=True):
    """One delivery of a record by a queue."""

    queue_id: str
    number: int


def seal(token: msgspec.Struct) -> str:
    payload = msgspec.msgpack.encode(token)
    return base64.b64encode(_PREFIX + _check(payload, type(token)) + payload).decode()


def unseal(text: str, kind: type[T]) -> T | None:
    """Return the token in `text`, or None if `seal` did not make it from this kind."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    check, payload = raw[8 : 8 + _CHECK_BYTES], raw[8 + _CHECK_BYTES :]
    if raw[:8] != _PREFIX or check != _check(payload, kind):
        return None
    return msgspec.msgpack.decode(payload, type=kind)


def _check(payload: bytes, kind: type[msgspec.Struct]) -> bytes:
    name = kind.__name__.encode()
    return hashlib.blake2b(payload, digest_size=_CHECK_BYTES, person=name[:16]).digest()
