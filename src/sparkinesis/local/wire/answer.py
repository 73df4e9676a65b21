"""HTTP responses, and errors in AWS's protocols: JSON 1.0, CBOR, XML for the query protocol.

CloudWatch's newest clients speak Smithy RPC v2 in CBOR, which is translated to and from JSON 1.0.
The operation is in the request's path. An instant is in seconds under tag 1, as in the RFC, and
unlike in the older protocol of `sparkinesis.local.encoding.codecs`. The service model defines which
values of the JSON are instants, blobs or doubles.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import MutableMapping
from typing import Any
from xml.sax.saxutils import escape

import cbor2
import msgspec

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


# Smithy RPC v2

_PROTOCOL = (b"smithy-protocol", b"rpc-v2-cbor")
_CONTENT_TYPE = b"application/cbor"
_PATH = re.compile(r"/service/([^/]+)/operation/([^/]+)")
_EPOCH = 1
# The headers that are not true of the other encoding.
_OF_CBOR = {_PROTOCOL[0], b"accept", b"content-type", b"x-amz-target"}
_OF_JSON = {b"content-type", b"x-amz-crc32"}


class UndecodableError(Exception):
    """A body that is no CBOR, or has values that JSON has not."""


def speaks_cbor(scope: MutableMapping[str, Any]) -> bool:
    """Return True for a request in Smithy's RPC v2: its answer has to be in that protocol too."""
    return _PROTOCOL in scope["headers"]


def target_of(scope: MutableMapping[str, Any]) -> str:
    """Return the operation in a path as the header X-Amz-Target has it; empty if there is none."""
    found = _PATH.search(scope["path"])
    return f"{found[1]}.{found[2]}" if found is not None else ""


def as_json(
    scope: MutableMapping[str, Any], target: str, body: bytes
) -> tuple[dict[str, Any], bytes]:
    """Translate a request to JSON; return its scope and body. Raises: UndecodableError."""
    headers = [pair for pair in scope["headers"] if pair[0] not in _OF_CBOR]
    headers += [
        (b"content-type", b"application/x-amz-json-1.0"),
        (b"x-amz-target", target.encode("latin-1")),
    ]
    try:
        sent = cbor2.loads(body, semantic_decoders={_EPOCH: _seconds}) if body else {}
        encoded = msgspec.json.encode(sent)
    except (cbor2.CBORDecodeError, TypeError, ValueError, RecursionError) as error:
        raise UndecodableError(str(error)) from None
    return {**scope, "headers": headers, "raw_path": b"/", "query_string": b""}, encoded


def _seconds(value: Any, _immutable: bool) -> Any:
    return value


def as_cbor(answer: Answer, target: str) -> Answer:
    """Translate an answer in JSON: an error, or the answer to a call of CloudWatch."""
    content = msgspec.json.decode(answer.body) if answer.body else {}
    if answer.status < 400:
        shape = _model().operation_model(target.partition(".")[2]).output_shape
        content = _typed(content, shape)
    kept = [pair for pair in answer.headers if pair[0] not in _OF_JSON]
    headers = [*kept, _PROTOCOL, (b"content-type", _CONTENT_TYPE)]
    return Answer(answer.status, headers, cbor2.dumps(content))


def _typed(value: Any, shape: Any) -> Any:
    """Return a value of a shape, decoded from JSON, in CBOR's types. Drops unknown members."""
    kind = shape.type_name if shape is not None else "structure"
    if kind == "structure":
        members = shape.members.items() if shape is not None else ()
        return {name: _typed(value[name], of) for name, of in members if name in value}
    if kind == "list":
        return [_typed(item, shape.member) for item in value]
    if kind == "map":
        return {key: _typed(item, shape.value) for key, item in value.items()}
    if kind == "timestamp":
        return cbor2.CBORTag(_EPOCH, float(value))
    if kind == "blob":
        return base64.b64decode(value)
    return float(value) if kind in {"double", "float"} else value


@functools.cache
def _model() -> Any:
    # Imported late: it takes a tenth of a second.
    from botocore.loaders import Loader  # noqa: PLC0415
    from botocore.model import ServiceModel  # noqa: PLC0415

    return ServiceModel(Loader().load_service_model("cloudwatch", "service-2"), "cloudwatch")
