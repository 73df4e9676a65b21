"""Codecs between typed requests and HTTP bodies, one per content type; and the JSON codec."""

from __future__ import annotations

import abc
from typing import Any

import msgspec

from sparkinesis.local import errors
from sparkinesis.local.encoding import validation
from sparkinesis.local.encoding.requests import Request
from sparkinesis.local.model.records import RecordPage, buffers


class Codec(abc.ABC):
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
            raise errors.serialization(str(error)) from None
        validation.check(operation, request)
        present = {name: value for name, value in request.items() if value is not None}
        try:
            return msgspec.convert(present, kind)
        except msgspec.ValidationError as error:
            raise errors.serialization(str(error)) from None

    def _plain(self, result: dict[str, Any]) -> bytes:
        return msgspec.json.encode(result)

    def _page(self, page: RecordPage) -> bytes:
        rest = msgspec.json.encode(page.rest)[1:]
        found = buffers(page.records.json)
        if found:
            found[-1] = found[-1][:-1]  # the comma behind the last record
        return b"".join((b'{"Records":[', *found, b"]," if page.rest else b"]", rest))
