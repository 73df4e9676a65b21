"""What botocore puts into each request of one kind: learnt from a request that it has sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from sparkinesis.stream.calls.direct.signature import (
    DATE,
    TOKEN,
    Canonical,
    SigningScope,
    canonical,
    parse_authorization,
)

_OF_EACH_CALL = frozenset(
    {
        "authorization",
        DATE,
        TOKEN,
        "content-length",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "x-amzn-trace-id",
    }
)
"""Headers that botocore makes anew for each call; the last three say nothing that is needed."""


class LearnedRequest(msgspec.Struct, frozen=True):
    """The part of a request that is the same in each call of its kind."""

    url: str
    scope: SigningScope
    canonical: Canonical
    head: bytes
    """The request line and the headers that are the same in each call."""


def learn(request: Any) -> LearnedRequest | None:
    """Return what there is to learn from botocore's prepared request.

    None for a request that cannot be repeated with another body: not a POST of JSON to ``/``, or
    not signed by signature version 4.
    """
    parts = urlsplit(request.url)
    headers = {name.lower(): as_text(value) for name, value in request.headers.items()}
    authorization = parse_authorization(headers.get("authorization", ""))
    is_json = headers.get("content-type", "").startswith("application/x-amz-json-1.")
    if (
        authorization is None
        or not is_json
        or request.method != "POST"
        or parts.path not in {"", "/"}
        or parts.query
    ):
        return None
    scope, signed = authorization
    fixed = {name: value for name, value in headers.items() if name not in _OF_EACH_CALL}
    if DATE not in signed or not set(signed) <= {*fixed, "host", DATE, TOKEN}:
        return None
    return repeated(request.url, scope, signed, fixed)


def repeated(
    url: str, scope: SigningScope, signed: Iterable[str], headers: Mapping[str, str]
) -> LearnedRequest:
    """Return the request with these headers, and with those that http.client would add.

    signed: the names of the headers to sign, the date included.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port not in {None, {"http": 80, "https": 443}[parts.scheme]}:
        host = f"{host}:{parts.port}"
    fixed = {**headers, "host": host}
    # Without this header, any encoding would be welcome.
    sent = {"accept-encoding": "identity", **fixed}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return LearnedRequest(
        url,
        scope,
        canonical(
            signed,
            {name: " ".join(value.split()) for name, value in fixed.items() if name in signed},
        ),
        f"POST / HTTP/1.1\r\n{head}".encode("latin-1"),
    )


def as_text(value: str | bytes) -> str:
    """Return a header's value, of which botocore has some in bytes."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
