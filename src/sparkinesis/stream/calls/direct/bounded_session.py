"""Bounds of the calls that botocore's client makes, and their way over our own connections.

botocore's HTTP library reads an answer to its end, however long that takes, and however long it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import urllib3.exceptions
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError, HTTPClientError, ReadTimeoutError
from botocore.utils import get_environ_proxies

from sparkinesis.stream.calls.direct.bounds import USUAL, AnswerTooLongError, Bound
from sparkinesis.stream.calls.direct.connection import HttpAnswer
from sparkinesis.stream.calls.direct.learned import as_text
from sparkinesis.stream.calls.direct.understood import decode_object

_PIECE = 65_536

Exchange: TypeAlias = Callable[[str, bytes, Bound], HttpAnswer]
"""Sends a request to a URL, and returns the answer; raises botocore's errors."""


def bound_calls(client: Any, bounds: Mapping[str, Bound]) -> None:
    """Give the calls of a botocore client bounds; for operations that ``bounds`` lacks the usual.

    The time of the headers is bounded for each part of them only.
    """
    _wrap(client, lambda session: _BoundedSession(session, bounds))


def send_by(client: Any, exchange: Exchange, bounds: Mapping[str, Bound]) -> None:
    """Let ``exchange`` send the requests of a botocore client, but for those behind a proxy."""
    proxies = get_environ_proxies(client.meta.endpoint_url)
    _wrap(client, lambda session: _DirectSession(session, exchange, bounds, proxies))


def _wrap(client: Any, wrapped: Callable[[Any], Any]) -> None:
    # A handler of ``before-send`` could answer, too, but then a mock's would be asked as well.
    endpoint = client._endpoint
    endpoint.http_session = wrapped(endpoint.http_session)


class _BoundedSession:
    """An HTTP session of botocore's."""

    def __init__(self, session: Any, bounds: Mapping[str, Bound]) -> None:
        self._session = session
        self._bounds = bounds

    def close(self) -> None:
        self._session.close()

    def send(self, request: Any) -> AWSResponse:
        bound = _bound_of(request, self._bounds)
        until = time.monotonic() + bound.seconds
        is_stream, request.stream_output = request.stream_output, True
        answer: AWSResponse = self._session.send(request)
        if is_stream and answer.status_code < 300:
            return answer
        body = bytearray()
        try:
            while piece := answer.raw.read1(_PIECE):
                body += piece
                if len(body) > bound.size:
                    raise AnswerTooLongError(f"{len(body)} or more", bound.size)
                if time.monotonic() > until:
                    raise TimeoutError("the answer did not end in time")
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            answer.raw.close()
            kind: Any = ConnectionClosedError
            if isinstance(error, AnswerTooLongError):
                kind = HTTPClientError
            elif isinstance(error, TimeoutError | urllib3.exceptions.ReadTimeoutError):
                kind = ReadTimeoutError
            raise kind(endpoint_url=request.url, error=error) from error
        return _response(request, answer.status_code, answer.headers, body)


class _DirectSession:
    """Sends over connections of our own."""

    def __init__(
        self,
        session: Any,
        exchange: Exchange,
        bounds: Mapping[str, Bound],
        proxies: Mapping[str, str],
    ) -> None:
        self._session = session
        self._exchange = exchange
        self._bounds = bounds
        self._proxies = proxies

    def close(self) -> None:
        self._session.close()

    def send(self, request: Any) -> AWSResponse:
        if request.stream_output or self._proxies.get(urlsplit(request.url).scheme):
            behind: AWSResponse = self._session.send(request)
            return behind
        bound = _bound_of(request, self._bounds)
        answer = self._exchange(request.url, _bytes_of(request), bound)
        return _response(request, answer.status, answer.headers, answer.body)


def _bound_of(request: Any, bounds: Mapping[str, Bound]) -> Bound:
    target = as_text(request.headers.get("X-Amz-Target", ""))
    return bounds.get(target.rpartition(".")[2], USUAL)


class _Whole:
    """A body that has been read, in the form that botocore reads."""

    def __init__(self, body: bytes | bytearray) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield bytes(self._body)


_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _response(request: Any, status: int, headers: Any, body: bytes | bytearray) -> AWSResponse:
    """Return an answer as botocore has it, whose parser takes JSON that is cut short for empty."""
    kind = as_text(request.headers.get("Content-Type", ""))
    if status < 300 and kind.startswith("application/x-amz-json"):
        decode_object(body, _DECODER)
    return AWSResponse(request.url, status, headers, _Whole(body))


def _bytes_of(request: Any) -> bytes:
    """Return a prepared request as it is sent."""
    parts = urlsplit(request.url)
    target = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    # Without the first of these, any encoding would be welcome.
    headers = {"accept-encoding": "identity", "host": parts.netloc}
    headers |= {name.lower(): as_text(value) for name, value in request.headers.items()}
    lines = [f"{request.method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any("\r" in line or "\n" in line for line in lines):
        raise HTTPClientError(error=ValueError("a header has a line break"))
    body = request.body or b""
    body = body.encode() if isinstance(body, str) else bytes(body)
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
