"""Codecs between typed requests and HTTP bodies: JSON for boto3 and the AWS CLI, CBOR for Java.

In the CBOR of the AWS SDKs for Java, blobs are byte strings, and an instant is an integer of
milliseconds under tag 1. RFC 8949 defines that tag as seconds, and cbor2 decodes it so: this module
replaces cbor2's decoding of the tag. The service model defines which members are blobs and which
are instants.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any

import cbor2
import msgspec

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import validation
from sparkinesis.local.encoding.requests import Request
from sparkinesis.local.model.records import ARRAY, MAP, RecordPage, buffers, cbor_head


class Codec(abc.ABC):
    """The encoding of one content type."""

    content_type: str

    @abc.abstractmethod
    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        """Decode and validate the request in `body`. Raises: KinesisError.

        trusting: skip the constraint checks for a well-typed body, because the operation makes them
        itself (PutRecords, whose bodies are large).
        """

    def encode(self, result: RecordPage | dict[str, Any] | None) -> bytes:
        if result is None:
            return b""
        return self._page(result) if isinstance(result, RecordPage) else self._plain(result)

    def encode_error(self, code: str, message: str) -> bytes:
        return self._plain({"__type": code, "message": message})

    @abc.abstractmethod
    def _plain(self, result: dict[str, Any]) -> bytes: ...

    @abc.abstractmethod
    def _page(self, page: RecordPage) -> bytes:
        """Encode a page with one copy of its records, which may be 10 MB: the join."""


class JsonCodec(Codec):
    """The codec for JSON 1.1, which boto3 and the AWS CLI use."""

    content_type = "application/x-amz-json-1.1"

    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        if trusting:
            try:
                return msgspec.json.decode(body, type=kind)
            except (msgspec.DecodeError, RecursionError):
                pass  # the checks below raise the service's own message
        try:
            request = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise service_errors.serialization(str(error)) from None
        validation.check(operation, request)
        present = {name: value for name, value in request.items() if value is not None}
        try:
            return msgspec.convert(present, kind)
        except msgspec.ValidationError as error:
            raise service_errors.serialization(str(error)) from None

    def _plain(self, result: dict[str, Any]) -> bytes:
        return msgspec.json.encode(result)

    def _page(self, page: RecordPage) -> bytes:
        rest = msgspec.json.encode(page.rest)[1:]
        found = buffers(page.records.json)
        if found:
            found[-1] = found[-1][:-1]  # the comma behind the last record
        return b"".join((b'{"Records":[', *found, b"]," if page.rest else b"]", rest))


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
    """The codec for CBOR 1.1."""

    content_type = "application/x-amz-cbor-1.1"

    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        try:
            sent = cbor2.loads(body, semantic_decoders={_EPOCH: _instant})
        except (cbor2.CBORDecodeError, TypeError, ValueError) as error:
            raise service_errors.serialization(str(error)) from None
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
            raise service_errors.serialization(str(error)) from None

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
