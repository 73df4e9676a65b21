"""CBOR, as the AWS SDKs for Java speak it to Kinesis.

Blobs are byte strings, and an instant is an integer of milliseconds under tag 1. RFC 8949 has
seconds under that tag, and cbor2 reads them so by itself: its decoding of the tag is replaced here.
Conversions follow the service model, which says what is a blob and what an instant.
"""

from __future__ import annotations

import dataclasses
import math
from base64 import b64encode
from typing import Any

import cbor2
import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import validation
from sparkinesis.local.encoding.requests import Request
from sparkinesis.local.model.record_page import RecordPage

_EPOCH = 1
_MAX_MS = 1 << 63
# The timestamps in answers; their values are seconds until they are encoded.
_TIMES = frozenset(
    {"ApproximateArrivalTimestamp", "ConsumerCreationTimestamp", "StreamCreationTimestamp"}
)


@dataclasses.dataclass(frozen=True)
class _Instant:
    seconds: float


_TYPES: validation.Types = {
    **validation.JSON_TYPES,
    "blob": (bytes,),
    "timestamp": (_Instant,),
}


class _StoredRecord(msgspec.Struct):
    """A record as `shard` keeps it. `data` is decoded from base64 by msgspec."""

    number: str = msgspec.field(name="SequenceNumber")
    arrival: float = msgspec.field(name="ApproximateArrivalTimestamp")
    data: bytes = msgspec.field(name="Data")
    key: str | None = msgspec.field(name="PartitionKey", default=None)


_decode_records = msgspec.json.Decoder(list[_StoredRecord]).decode


class CborCodec:
    content_type = "application/x-amz-cbor-1.1"

    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        try:
            sent = cbor2.loads(body, semantic_decoders={_EPOCH: _instant})
        except (cbor2.CBORDecodeError, TypeError, ValueError) as error:
            raise errors.serialization(str(error)) from None
        validation.check_types(operation, sent, _TYPES)
        request = _plain(sent, validation.input_shape(operation))
        if not trusting:
            validation.check_constraints(operation, request)
        try:
            return msgspec.convert(request, kind)
        except msgspec.ValidationError as error:
            # Finds the service's words for a member that is missing.
            validation.check_constraints(operation, request)
            raise errors.serialization(str(error)) from None

    def encode(self, result: RecordPage | dict[str, Any] | None) -> bytes:
        if result is None:
            return b""
        if isinstance(result, RecordPage):
            answer = {"Records": _records(result.records), **_wire(result.rest)}
            return cbor2.dumps(answer)
        return cbor2.dumps(_wire(result))

    def encode_error(self, code: str, message: str) -> bytes:
        return cbor2.dumps({"__type": code, "message": message})


def _instant(value: Any, _immutable: bool) -> Any:
    """What is under tag 1: whole milliseconds, or seconds as a float, as RFC 8949 has them.

    Anything else stays as it is, which no member of a request allows.
    """
    if type(value) is int and abs(value) < _MAX_MS:
        return _Instant(value / 1000)
    if type(value) is float and math.isfinite(value) and abs(value) < _MAX_MS:
        return _Instant(value)
    return value


def _plain(value: Any, shape: Any) -> Any:
    """A request whose types were checked, as the typed requests have it; unknown members go."""
    kind = shape.type_name
    if kind == "structure":
        return {
            name: _plain(value[name], member)
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if kind == "list":
        return [_plain(item, shape.member) for item in value]
    if kind == "blob":
        return b64encode(value).decode()
    if kind == "timestamp":
        return value.seconds
    return value


def _wire(value: Any) -> Any:
    """An answer with its instants as they are sent."""
    if isinstance(value, dict):
        return {
            name: _milliseconds(item) if name in _TIMES else _wire(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_wire(item) for item in value]
    return value


def _records(stored: list[bytes]) -> list[dict[str, Any]]:
    return [
        {
            "SequenceNumber": record.number,
            "ApproximateArrivalTimestamp": _milliseconds(record.arrival),
            "Data": record.data,
            **({} if record.key is None else {"PartitionKey": record.key}),
        }
        for record in _decode_records(b"[" + b",".join(stored) + b"]")
    ]


def _milliseconds(seconds: float) -> cbor2.CBORTag:
    return cbor2.CBORTag(_EPOCH, round(seconds * 1000))
