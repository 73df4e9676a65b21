"""Bodies on the wire. One codec per content type; the operations know nothing of either."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import validation
from sparkinesis.local.encoding.requests import Request
from sparkinesis.local.model.record_page import RecordPage


class Codec(Protocol):
    content_type: str

    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        """The request in `body`, checked.

        trusting: a well-typed body is not checked any further here, because the operation checks it
        (PutRecords, whose bodies are large).
        """

    def encode(self, result: RecordPage | dict[str, Any] | None) -> bytes: ...

    def encode_error(self, code: str, message: str) -> bytes: ...


class JsonCodec:
    """JSON 1.1, as boto3 and the AWS CLI speak it."""

    content_type = "application/x-amz-json-1.1"

    def decode(self, operation: str, body: bytes, kind: type[Request], trusting: bool) -> Request:
        if trusting:
            try:
                return msgspec.json.decode(body, type=kind)
            except msgspec.DecodeError:
                pass  # the careful way finds the words for what is wrong
        try:
            request = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise errors.serialization(str(error)) from None
        validation.check(operation, request)
        present = {name: value for name, value in request.items() if value is not None}
        try:
            return msgspec.convert(present, kind)
        except msgspec.ValidationError as error:
            raise errors.serialization(str(error)) from None

    def encode(self, result: RecordPage | dict[str, Any] | None) -> bytes:
        if result is None:
            return b""
        if isinstance(result, RecordPage):
            return _page(result)
        return msgspec.json.encode(result)

    def encode_error(self, code: str, message: str) -> bytes:
        return msgspec.json.encode({"__type": code, "message": message})


def _page(page: RecordPage) -> bytes:
    """Ten megabytes are copied once, by the join."""
    rest = msgspec.json.encode(page.rest)[1:]
    if not page.records:
        return b'{"Records":[],' + rest
    parts = page.records.copy()
    parts[0] = b'{"Records":[' + parts[0]
    parts[-1] += b"]," + rest
    return b",".join(parts)
