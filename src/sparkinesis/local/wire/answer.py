"""HTTP responses, and errors in AWS's protocols: JSON 1.0, CBOR, XML for the query protocol."""

from __future__ import annotations

from xml.sax.saxutils import escape

import msgspec

from sparkinesis.local.encoding import rpc_v2

CLOUDWATCH = "GraniteServiceVersion20100801"


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
    """service: the part of the target before its dot, which the form of an error depends on."""
    is_its_own = service.startswith("DynamoDB") and code != "UnknownOperationException"
    prefix = "com.amazonaws.dynamodb.v20120810#" if is_its_own else ""
    body = msgspec.json.encode({"__type": prefix + code, "message": message})
    headers = [(b"content-type", b"application/x-amz-json-1.0")]
    if service == CLOUDWATCH:
        # For clients from the query protocol's times: its code, and whose fault it is.
        whose = "Sender" if status < 500 else "Receiver"
        headers.append((b"x-amzn-query-error", f"{code};{whose}".encode()))
    return Answer(status, headers, body)


def xml_error(code: str, message: str, status: int) -> Answer:
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Answer(status, [(b"content-type", b"text/xml")], f"{body}</ErrorResponse>".encode())


def in_cbor(answer: Answer, target: str) -> Answer:
    """Return an answer in JSON, to a call in Smithy's RPC v2, in that protocol."""
    return Answer(
        answer.status, *rpc_v2.as_cbor(answer.status, answer.headers, answer.body, target)
    )
