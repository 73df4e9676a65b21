"""HTTP responses, and errors in the protocols of AWS: JSON 1.0, and XML for the query protocol."""

from __future__ import annotations

from xml.sax.saxutils import escape

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """An HTTP response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def text(status: int, message: str) -> Answer:
    return Answer(
        status, [(b"content-type", b"text/plain; charset=utf-8")], f"{message}\n".encode()
    )


def json_error(code: str, message: str, status: int, service: str = "") -> Answer:
    """service: the part of the target before its dot, which DynamoDB's errors depend on."""
    prefix = "com.amazonaws.dynamodb.v20120810#" if service.startswith("DynamoDB") else ""
    body = msgspec.json.encode({"__type": prefix + code, "message": message})
    return Answer(status, [(b"content-type", b"application/x-amz-json-1.0")], body)


def xml_error(code: str, message: str, status: int) -> Answer:
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Answer(status, [(b"content-type", b"text/xml")], f"{body}</ErrorResponse>".encode())
