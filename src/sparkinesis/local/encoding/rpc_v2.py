"""Smithy RPC v2 in CBOR, which CloudWatch's newest clients speak, to and from JSON 1.0.

The operation is in the request's path. Instants are seconds under tag 1; unlike
`sparkinesis.local.encoding.cbor`, whose protocol is older, it is the RFC's. The service model
defines what of JSON is an instant, a blob or a double.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import MutableMapping
from typing import Any, TypeAlias

import cbor2
import msgspec

Headers: TypeAlias = list[tuple[bytes, bytes]]

_PROTOCOL = (b"smithy-protocol", b"rpc-v2-cbor")
_CONTENT_TYPE = b"application/cbor"
_PATH = re.compile(r"/service/([^/]+)/operation/([^/]+)")
_EPOCH = 1
# Of the headers, those that would not be true of the JSON.
_OF_CBOR = {_PROTOCOL[0], b"accept", b"content-type", b"x-amz-target"}
_OF_JSON = {b"content-type", b"x-amz-crc32"}


class UndecodableError(Exception):
    """A body that is no CBOR, or has values that JSON has not."""


def is_spoken(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request is in this protocol, and its answer has to be."""
    return _PROTOCOL in scope["headers"]


def target(scope: MutableMapping[str, Any]) -> str:
    """Return what a path names, in the form of the header X-Amz-Target; empty if it names none."""
    found = _PATH.search(scope["path"])
    return f"{found[1]}.{found[2]}" if found is not None else ""


def as_json(
    scope: MutableMapping[str, Any], target: str, body: bytes
) -> tuple[dict[str, Any], bytes]:
    """Return a request as one in JSON: its scope and body. Raises: UndecodableError."""
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


def as_cbor(status: int, headers: Headers, body: bytes, target: str) -> tuple[Headers, bytes]:
    """Return the headers and the body of an answer in JSON as those of one in CBOR.

    The answer is an error, or that to a call to CloudWatch.
    """
    told = msgspec.json.decode(body) if body else {}
    if status < 400:
        told = _typed(told, _model().operation_model(target.partition(".")[2]).output_shape)
    kept = [pair for pair in headers if pair[0] not in _OF_JSON]
    return [*kept, _PROTOCOL, (b"content-type", _CONTENT_TYPE)], cbor2.dumps(told)


def _typed(value: Any, shape: Any) -> Any:
    """Return what JSON says of a shape in the types that CBOR has. Unknown members are dropped."""
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
