"""User records as JSON objects, which `tail` and `dead-letters` print and `put` reads. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from sparkinesis.errors import OptionError

if TYPE_CHECKING:
    from sparkinesis.worker.batches.user_record import UserRecord


class RecordKeys(NamedTuple):
    """The keys of a record to put; None where the object has none."""

    partition_key: str | None
    explicit_hash_key: str | None = None


def record_object(record: UserRecord, stream: str) -> dict[str, Any]:
    """Return the object of a user record."""
    from sparkinesis.monitor.lease_report import instant_text  # noqa: PLC0415 - slow to import

    return {
        "stream": stream,
        "shard": record.shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "explicit_hash_key": record.explicit_hash_key,
        "arrived_at": instant_text(record.approximate_arrival_timestamp),
        **data_fields(record.data),
    }


def data_fields(data: bytes) -> dict[str, str]:
    """Return the data as text if a terminal can show it as it is, else in base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.translate(_LAYOUT).isprintable():
        return {"data": text}
    return {"data_base64": base64.b64encode(data).decode()}


def parse_object(line: bytes) -> dict[str, Any]:
    """Read a line of JSON. Raises `OptionError` if the line is not an object."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise OptionError("it is JSON, but not an object")
    return found


def parse_record(line: bytes) -> tuple[RecordKeys, bytes]:
    """Read a line that holds an object of `record_object`; only its data is required.

    Raises `OptionError` with a text that continues a sentence.
    """
    found = parse_object(line)
    keys = RecordKeys(_text(found, "partition_key"), _text(found, "explicit_hash_key"))
    text, encoded = _text(found, "data"), _text(found, "data_base64")
    if (text is None) == (encoded is None):
        raise OptionError('it has not one of "data" and "data_base64"')
    if text is not None:
        return keys, text.encode()
    try:
        return keys, base64.b64decode(encoded or "", validate=True)
    except (binascii.Error, ValueError):
        raise OptionError('its "data_base64" is not base64') from None


def _text(found: Mapping[str, Any], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise OptionError(f'its "{name}" is not a text')
    return value


_LAYOUT = {ord("\n"): None, ord("\t"): None}
"""Control characters that a text may have: they are no danger to a terminal."""
