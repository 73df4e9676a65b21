"""The calls that botocore makes, within our bounds: rare ones, and all behind a proxy.

`ByBotocore` makes a call by botocore's client, or has only its request prepared; it makes errors of
answers, too. `bound_calls` and `send_by` replace the HTTP session of a client: botocore's own reads
an answer to its end, however long that takes, and however long it is. `pumped` gives a body that
botocore reads from behind a proxy the form of one of our own connections.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import botocore
import botocore.parsers
import msgspec
import urllib3.exceptions
from botocore import xform_name
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    HTTPClientError,
    ReadTimeoutError,
)
from botocore.utils import get_environ_proxies
from urllib3 import HTTPResponse

from sparkinesis.metrics.health.liveness import CONNECTING, CREDENTIALS, expect
from sparkinesis.stream.calls.answers.guards import (
    USUAL,
    AnswerTooLongError,
    Bound,
    decode_object,
)
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer, StreamedBody
from sparkinesis.stream.calls.direct.signed_request import (
    LearnedRequest,
    Signers,
    as_text,
    learn,
)


class _Prepared(Exception):  # noqa: N818 - botocore stops for it, and nobody else sees it
    """botocore has prepared a request that can be repeated."""

    def __init__(self, learned: LearnedRequest) -> None:
        super().__init__("the request is sent directly")
        self.learned = learned


class OldBotocoreError(BotoCoreError):  # type: ignore[misc]
    """botocore's model of the service is older than an operation. No retry helps."""

    fmt = (
        "botocore {version}, which prepares this request, is older than {operation}. Install "
        "boto3>=1.44.5, or the newest boto3"
    )


class ByBotocore:
    """botocore's client of one service. For any thread.

    operations: those whose requests `prepare` takes from botocore. signers: correct the clock; also
    that of botocore's calls.
    """

    def __init__(
        self, client: Any, session: Any, operations: Collection[str], signers: Signers
    ) -> None:
        self._client = client
        self._credentials = session.get_credentials()
        self._signers = signers
        self._proxies = get_environ_proxies(client.meta.endpoint_url)
        self._thread = threading.local()
        self._service = client.meta.service_model
        self._operations: Mapping[str, str] = client.meta.method_to_api_mapping
        # Before 1.36, botocore has the protocol in the metadata only.
        protocol = getattr(self._service, "resolved_protocol", self._service.metadata["protocol"])
        self._parser = botocore.parsers.create_parser(protocol)
        event = f"before-send.{self._service.service_id.hyphenize()}"
        client.meta.events.register_first(event, self._before_send)
        for operation in operations:
            # botocore calls the handlers of one operation first. Another one of those may send.
            client.meta.events.register_first(f"{event}.{operation}", self._before_send)
        wanted = str(session.get_config_variable("endpoint_discovery_enabled")).strip().lower()
        self.discovers_endpoints = (
            wanted == "true" and self._service.endpoint_discovery_operation is not None
        )
        """True if the user wants botocore to ask DynamoDB for endpoints, which change."""

    def attribute(self, name: str) -> Any:
        """Return an attribute of botocore's client: a method that calls `call`, or another one."""
        found = getattr(self._client, name)
        if name not in self._operations:
            return found
        return lambda **request: self.call(self._operations[name], request)

    def close(self) -> None:
        self._client.close()

    def prepare(
        self, operation: str, request: Mapping[str, Any]
    ) -> LearnedRequest | dict[str, Any]:
        """Return the request that botocore prepares; or the answer, if botocore has to send it."""
        try:
            answer: dict[str, Any] = self.call(operation, request, may_prepare=True)
        except _Prepared as prepared:
            return prepared.learned
        return answer

    def call(
        self, operation: str, request: Mapping[str, Any], *, may_prepare: bool = False
    ) -> dict[str, Any]:
        """Call an operation; a second time if the first attempt corrects the clock.

        Raises `OldBotocoreError` for an operation that botocore does not know.
        """
        name = xform_name(operation)
        if not hasattr(self._client, name):
            raise OldBotocoreError(version=botocore.__version__, operation=operation)
        method: Callable[..., dict[str, Any]] = getattr(self._client, name)
        config = self._client.meta.config
        expect(max(CREDENTIALS, CONNECTING + config.connect_timeout + config.read_timeout))
        self._thread.may_prepare = may_prepare
        skew = self._signers.skew
        try:
            return method(**request)
        except ClientError as error:
            if not self._signers.corrects_clock(error, skew):
                raise
        finally:
            self._thread.may_prepare = False
        return method(**request)

    def _before_send(self, request: Any, **_: Any) -> None:
        """Stop botocore from sending a request that can be sent directly; sign any other anew.

        botocore's ``before-send`` permits both.
        """
        if getattr(self._thread, "may_prepare", False) and not self._proxies.get(
            urlsplit(request.url).scheme
        ):
            learned = learn(request)
            if learned is not None:
                raise _Prepared(learned)
        if self._signers.skew and (signed := learn(request)) is not None:
            keys = self._credentials.get_frozen_credentials()
            body = request.body or b""
            date, proof = self._signers.of(signed.scope).sign(keys, signed.canonical, body)
            request.headers["X-Amz-Date"] = date
            request.headers["Authorization"] = proof

    def error(self, operation: str, answer: HttpAnswer) -> ClientError:
        """Return botocore's error for an answer, made by botocore's parser."""
        is_known = operation in self._service.operation_names  # to an old botocore, not each is
        shape = self._service.operation_model(operation).output_shape if is_known else None
        response = {
            "status_code": answer.status,
            "headers": HeadersDict(answer.headers),
            "body": bytes(answer.body),
        }
        parsed = self._parser.parse(response, shape)
        code = parsed.get("Error", {}).get("Code")
        error_shape = self._service.shape_for_error_code(code)
        if error_shape is not None:
            # The fields of its own, such as the row of a refused condition.
            parsed.update(self._parser.parse(response, error_shape))
        parsed["ResponseMetadata"]["RetryAttempts"] = 0
        kind = self._client.exceptions.from_code(code)
        error: ClientError = kind(parsed, operation)
        return error


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
    """An HTTP session of botocore's, whose answers have bounds in time and size."""

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


class _DirectSession(_BoundedSession):
    """An HTTP session over connections of our own; behind a proxy, over botocore's."""

    def __init__(
        self,
        session: Any,
        exchange: Exchange,
        bounds: Mapping[str, Bound],
        proxies: Mapping[str, str],
    ) -> None:
        super().__init__(session, bounds)
        self._exchange = exchange
        self._proxies = proxies

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


class PumpedBody(StreamedBody):
    """The bytes of urllib3's response, and its failure."""

    def __init__(self, connection: socket.socket, response: HTTPResponse) -> None:
        super().__init__(response.url or "", connection, b"", {})
        self._response = response
        self.failure: Exception | None = None

    def read(self, most: int, until: float, /) -> bytearray:
        body = super().read(most, until)
        if len(body) < most and self.failure is not None:
            raise self.failure
        return body

    def shutdown(self) -> None:
        super().shutdown()
        # An error means that the read has just ended, or that the peer has disconnected.
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        self.shutdown()
        super().close()


def pumped(response: HTTPResponse) -> PumpedBody:
    """Copy a response in a thread of its own, and return the other end."""
    ours, theirs = socket.socketpair()
    body = PumpedBody(ours, response)
    threading.Thread(
        target=_pump, args=(response, theirs, body), name="sparkinesis-behind-proxy", daemon=True
    ).start()
    return body


def _pump(response: HTTPResponse, to: socket.socket, body: PumpedBody) -> None:
    try:
        while data := response.read1(_PIECE):
            to.sendall(data)
    except urllib3.exceptions.ReadTimeoutError as error:
        body.failure = TimeoutError(str(error))
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        body.failure = EOFError(str(error))
    finally:
        with contextlib.suppress(OSError):
            to.close()
        response.close()
