"""Functions of bytes: what producers put around a payload is taken off.

- `gunzip`: what gzip has compressed
- `glue_record`: the parts of a record that has the header of the AWS Glue Schema Registry
- `spring_record`: the parts of a record in which Spring Cloud Stream has embedded headers
- `dynamodb_record`: a change that DynamoDB has captured, with plain values
- `connect_decimal`: a number of Kafka Connect's logical type Decimal

They are for record processors and for handlers of queues: ``gunzip(record.data)``.
`sparkinesis.functions` has the same for columns of Spark. Each returns None for data of another
format, and raises nothing, whatever a producer has put. ``docs/payloads.md`` has whole programs.
"""

from __future__ import annotations

import re
from base64 import b64decode
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

__all__ = ["connect_decimal", "dynamodb_record", "glue_record", "gunzip", "spring_record"]

MOST_BYTES = 256 * 1024 * 1024
"""A payload that would become larger is damaged or hostile: Kinesis takes records of 10 MiB."""

ZLIB, GZIP = 15, 16 + 15
"""Formats, as zlib's ``wbits`` names them."""

_GLUE_HEADER_BYTES = 18
_NO_JSON = (msgspec.DecodeError, RecursionError)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def gunzip(data: bytes) -> bytes | None:
    """Return the bytes that gzip has compressed, in one member or in several.

    The result is None for bytes that are not in gzip's format, are damaged, or would become larger
    than 256 MiB.
    """
    return decompressed(data, GZIP)


def glue_record(data: bytes) -> tuple[str, bytes | None] | None:
    """Return the parts of a record that a serializer of the AWS Glue Schema Registry wrote.

    They are the id of the schema's version, and the payload behind the header, decompressed. The
    payload is None if it cannot be decompressed, or would be larger than 256 MiB. The result is
    None for a record without this header.
    """
    if len(data) < _GLUE_HEADER_BYTES or data[:2] not in (b"\x03\x00", b"\x03\x05"):
        return None
    payload = data[_GLUE_HEADER_BYTES:]
    return str(UUID(bytes=data[2:18])), decompressed(payload, ZLIB) if data[1] else payload


def spring_record(data: bytes) -> tuple[dict[str, Any] | None, bytes] | None:
    """Return the parts of a record in which Spring Cloud Stream has embedded headers.

    They are the headers and the payload. The headers are None if they are not JSON. The result is
    None for a record whose lengths are not those of this format.
    """
    end = 4 + int.from_bytes(data[:4], "big")
    start = end + 4
    if data[4:5] != b"{" or int.from_bytes(data[end:start], "big") != len(data) - start:
        return None
    try:
        headers = msgspec.json.decode(data[4:end], type=dict[str, Any])
    except _NO_JSON:
        headers = None
    return headers, data[start:]


class _Images(msgspec.Struct, rename="pascal"):
    keys: dict[str, dict[str, Any]]
    approximate_creation_date_time: int | None = None
    approximate_creation_date_time_precision: str | None = None
    new_image: dict[str, dict[str, Any]] | None = None
    old_image: dict[str, dict[str, Any]] | None = None


class _Change(msgspec.Struct, rename="camel"):
    dynamodb: _Images
    event_id: str | None = msgspec.field(default=None, name="eventID")
    event_name: str | None = None
    table_name: str | None = None
    user_identity: dict[str, Any] | None = None


def dynamodb_record(data: bytes) -> dict[str, Any] | None:
    """Return a change that DynamoDB has captured in a stream, with plain values.

    The result has the record's ``eventID``, ``eventName``, ``tableName``, ``userIdentity``,
    ``ApproximateCreationDateTime``, ``Keys``, ``NewImage`` and ``OldImage``. The time is a datetime
    in UTC; an image is None if the record has none. In an image, a number is a `decimal.Decimal`,
    B is bytes, and a set is a set; otherwise values are as in JSON. The result is None for a record
    that is not such a change.
    """
    try:
        change = msgspec.json.decode(data, type=_Change)
        images = change.dynamodb
        return {
            "eventID": change.event_id,
            "eventName": change.event_name,
            "tableName": change.table_name,
            "userIdentity": change.user_identity,
            "ApproximateCreationDateTime": _created(images),
            "Keys": _item(images.keys),
            "NewImage": images.new_image and _item(images.new_image),
            "OldImage": images.old_image and _item(images.old_image),
        }
    except (*_NO_JSON, ValueError, TypeError, AttributeError, OverflowError):
        return None


def _created(images: _Images) -> datetime | None:
    created = images.approximate_creation_date_time
    if created is None:
        return None
    is_micro = images.approximate_creation_date_time_precision == "MICROSECOND"
    return _EPOCH + timedelta(microseconds=created if is_micro else created * 1000)


def _item(attributes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: _plain(attribute) for name, attribute in attributes.items()}


def _plain(attribute: dict[str, Any]) -> Any:
    ((kind, value),) = attribute.items()
    match kind:
        case "S" | "BOOL":
            return value
        case "N":
            return _number(value)
        case "NULL":
            return None
        case "B":
            return b64decode(value, validate=True)
        case "M":
            return _item(value)
        case "L":
            return [_plain(each) for each in value]
        case "SS":
            return set(value)
        case "NS":
            return {_number(each) for each in value}
        case "BS":
            return {b64decode(each, validate=True) for each in value}
    raise ValueError(f"DynamoDB has no type {kind}.")


def _number(text: str | int) -> Decimal:
    # A set of numbers may have them as numbers of JSON.
    if not _NUMBER.fullmatch(str(text)):
        raise ValueError(f"{text} is no number.")
    return Decimal(text)


def connect_decimal(value: str, scale: int) -> Decimal | None:
    """Return the number behind Base64, as Kafka Connect's converter for JSON writes a Decimal.

    scale: the digits behind the point, which the field's schema names.

    The result is None for a text that is not Base64, or has more digits than 38.
    """
    try:
        unscaled = b64decode(value, validate=True)
    except (ValueError, TypeError):
        return None
    if not 0 < len(unscaled) <= _MOST_DECIMAL_BYTES:
        return None
    digits = str(int.from_bytes(unscaled, "big", signed=True))
    # As text: a context's precision, which is 28 unless it is set, would round.
    number = Decimal(f"{digits}E-{scale}")
    return number if len(digits.lstrip("-")) <= _MOST_DIGITS else None


_MOST_DECIMAL_BYTES, _MOST_DIGITS = 16, 38
"""As many as a DECIMAL of Spark has."""


def decompressed(data: bytes, format_: int) -> bytes | None:
    """Return the bytes behind a format of zlib; None if they are damaged or too many.

    A gzip file may have several members, which follow one another. What follows a zlib stream is
    ignored, as the deserializer for Java ignores it.
    """
    from zlib_ng import zlib_ng  # noqa: PLC0415 - only data that is compressed needs it

    parts, left, start = [], MOST_BYTES, 0
    while start < len(data):
        stream, size = zlib_ng.decompressobj(format_), _FIRST_PIECE
        while not stream.eof:
            piece = data[start : start + size]
            try:
                part = stream.decompress(piece, left + 1)
            except zlib_ng.error:  # type: ignore[misc] # its stub has no type of it
                return None
            start += len(piece) - len(stream.unused_data)
            left -= len(part)
            if left < 0 or not piece:
                return None
            parts.append(part)
            size *= 8
        if format_ != GZIP:
            break
    return b"".join(parts) if parts else None


_FIRST_PIECE = 4096
"""Bytes of a member that are passed at first, then more: the stream copies those of the next
members, which must not be the rest of 10 MiB for each of half a million members."""
