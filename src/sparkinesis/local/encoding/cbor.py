"""The CBOR codec, as the AWS SDKs for Java use it with Kinesis.

Blobs are byte strings, and an instant is an integer of milliseconds under tag 1. RFC 8949 defines
that tag as seconds, and cbor2 decodes it so: this module replaces cbor2's decoding of the tag. The
service model defines which members are blobs and which are instants.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import cbor2
import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import validation
from sparkinesis.local.encoding.codec import Codec
from sparkinesis.local.encoding.requests import Request
from sparkinesis.local.model.records import ARRAY, MAP, RecordPage, buffers, cbor_head

_EPOCH = 1
_RECORDS = cbor2.dumps("Records")
_MAX_MS = 1 << 63


@dataclasses.dataclass(frozen=True)
class _Instant:
    seconds: float


_TYPES: validation.Types = {
    **validation.JSON_TYPES,
    "blob": (bytes,),
    "timestamp": (_Instant,),
}


class CborCodec(Codec):
    content_type = "application/x-amz-cbor-1.1"

    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        try:
            sent = cbor2.loads(body, semantic_decoders={_EPOCH: _instant})
        except (cbor2.CBORDecodeError, TypeError, ValueError) as error:
            raise errors.serialization(str(error)) from None
        if trusting:
            try:
                # bytes as a builtin type: no text is taken for a blob in base64.
                return msgspec.convert(sent, kind, builtin_types=(bytes,))
            except (msgspec.ValidationError, RecursionError):
                pass  # the checks below raise the service's own message
        validation.check_types(operation, sent, _TYPES)
        request = _known(sent, validation.input_shape(operation))
        if not trusting:
            validation.check_constraints(operation, request)
        try:
            return msgspec.convert(request, kind)
        except msgspec.ValidationError as error:
            # For a missing member, this raises the service's own message.
            validation.check_constraints(operation, request)
            raise errors.serialization(str(error)) from None

    def _plain(self, result: dict[str, Any]) -> bytes:
        return cbor2.dumps(_wire(result))

    def _page(self, page: RecordPage) -> bytes:
        rest = cbor2.dumps(_wire(page.rest))
        return b"".join(
            (
                cbor_head(MAP, 1 + len(page.rest)),
                _RECORDS,
                cbor_head(ARRAY, page.records.count),
                *buffers(page.records.cbor),
                rest[1:],  # without the head, which has the number of these members only
            )
        )


def _instant(value: Any, _immutable: bool) -> Any:
    """Decode tag 1: an int is milliseconds, a float is seconds as in RFC 8949.

    Any other value is returned unchanged; the type check then refuses it.
    """
    if type(value) is int and abs(value) < _MAX_MS:
        return _Instant(value / 1000)
    if type(value) is float and math.isfinite(value) and abs(value) < _MAX_MS:
        return _Instant(value)
    return value


def _known(value: Any, shape: Any) -> Any:
    """Convert a type-checked request for msgspec; unknown members are dropped."""
    kind = shape.type_name
    if kind == "structure":
        return {
            name: _known(value[name], member)
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
    if kind == "list":
        return [_known(item, shape.member) for item in value]
    if kind == "timestamp":
        return value.seconds
    return value


def _wire(value: Any) -> Any:
    """Return a response whose instants are CBOR tags."""
    if isinstance(value, dict):
        timestamps = validation.timestamps()
        return {
            name: _milliseconds(item) if name in timestamps else _wire(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_wire(item) for item in value]
    return value


def _milliseconds(seconds: float) -> cbor2.CBORTag:
    return cbor2.CBORTag(_EPOCH, round(seconds * 1000))
