"""The HTTP endpoint: serves Kinesis, and passes the calls of other services on to moto.

An ASGI application for HTTP/1.1 (`http1`) and HTTP/2 (`http2`). Resetting a connection without a
response is not part of ASGI and uses the transport directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import functools
import socket
import struct
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from sparkinesis.local.admission import (
    TOO_LATE,
    Bodies,
    BodyRefusedError,
    ClientLeftError,
    Guard,
)
from sparkinesis.local.encoding.codecs import CborCodec, Codec, JsonCodec
from sparkinesis.local.kinesis import CallResult, LocalKinesis
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.service_errors import KinesisError, unknown_operation, unsupported
from sparkinesis.local.wire.answer import (
    Answer,
    as_cbor,
    json_error,
    speaks_cbor,
    target_of,
    text,
    xml_error,
)
from sparkinesis.local.wire.dynamodb import Moto
from sparkinesis.local.wire.other_services import OtherServices, SignedBy, signer
from sparkinesis.local.wire.push import EVENT_STREAM, Push, result_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]

# The whole answer to OPTIONS: without access-control headers no page may call (CORS).
_ALLOWED = (b"allow", b"GET, HEAD, OPTIONS, POST")
_CODES = {
    403: "RequestRefused",
    405: "MethodNotAllowed",
    TOO_LATE: "RequestTimeout",
    413: "RequestEntityTooLarge",
    503: "ServiceUnavailable",
}
_SERVICE = "Kinesis_20131202"
_ABRUPT = struct.pack("ii", 1, 0)
TRANSPORT = "sparkinesis.transport"
KEEP_HEAD = "sparkinesis.keep_head"
"""In HTTP/1.1, a function to call if a body follows the head of the response at once."""


class App:
    """The ASGI application. Cancelling a call's task, as on shutdown, ends its response."""

    def __init__(
        self,
        kinesis: LocalKinesis,
        backend: Moto | LeaseTables,
        guard: Guard,
        bodies: Bodies,
        *,
        cloudwatch: bool = False,
    ) -> None:
        self._kinesis = kinesis
        self._others = OtherServices(kinesis, backend, cloudwatch=cloudwatch)
        services = ["kinesis", "dynamodb", "sts", *(["cloudwatch"] if cloudwatch else [])]
        self._about = msgspec.json.encode({"services": services}) + b"\n"
        self._guard = guard
        self._bodies = bodies
        self._codecs: dict[bytes, Codec] = {
            b"application/x-amz-json-1.1": JsonCodec(),
            b"application/json": JsonCodec(),
            b"application/x-amz-cbor-1.1": CborCodec(),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The connection is closed by then, and this is not a failure to log.
        with contextlib.suppress(asyncio.CancelledError, ClientLeftError):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = dict(scope["headers"])
        answer = self._without_body(scope, headers)
        if answer is None:
            try:
                answer = await self._call(scope, receive, send, headers)
            except BodyRefusedError as refused:
                answer = self._error(scope, headers, refused.status, str(refused))
                if refused.status == TOO_LATE and scope["http_version"] != "2":
                    answer.headers.append((b"connection", b"close"))
        if answer is not None:
            await _send(scope, send, answer)

    def _without_body(self, scope: Scope, headers: Headers) -> Answer | None:
        """Answer a request whose body does not matter; None for all others."""
        refused = self._guard.refusal(scope["headers"])
        if refused is not None:
            return self._error(scope, headers, 403, refused)
        method = scope["method"]
        if method == "OPTIONS":
            return Answer(200, [_ALLOWED], b"")
        if method in {"GET", "HEAD"} and scope["path"] == "/":
            kind = (b"content-type", b"application/json")
            return Answer(200, [kind], self._about)
        if method != "POST":
            message = "calls to Kinesis, DynamoDB and STS are POST requests"
            answer = self._error(scope, headers, 405, message)
            answer.headers.append(_ALLOWED)
            return answer
        return None

    async def _call(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers
    ) -> Answer | None:
        """Serve a call. Return its response; None if it has been sent, or is not to be sent."""
        in_cbor = speaks_cbor(scope)
        target = headers.get(b"x-amz-target", b"").decode("latin-1")
        if in_cbor:
            target = target_of(scope)
        signed = signer(headers.get(b"authorization", b""))
        outcome: CallResult | None = None
        answer: Answer | None = None
        async with self._bodies.whole(receive, _length(scope, headers)) as body:
            if _is_kinesis(target, signed) and not in_cbor:
                outcome = self._serve(target, headers, signed, body)
            else:
                answer = await self._others.answer(scope, target, signed, body)
        if outcome is not None:
            await self._finish(scope, receive, send, outcome, headers)
        elif answer is None:
            await _drop(scope, receive)
        else:
            answer.headers.append((b"date", self._date()))
        return answer

    def _serve(self, target: str, headers: Headers, signed: SignedBy, body: bytes) -> CallResult:
        codec = self._codec(headers)
        service, _, operation = target.partition(".")
        if service != _SERVICE:
            return _refusal(codec or JsonCodec(), unknown_operation(target))
        if codec is None:
            kind = headers.get(b"content-type", b"").decode("latin-1")
            return _refusal(JsonCodec(), unsupported(kind))
        if b"authorization" not in headers:
            code, message = "MissingAuthenticationTokenException", "Missing Authentication Token"
            return _refusal(codec, KinesisError(code, message))
        region, key = signed.region, signed.key
        return self._kinesis.serve(
            operation, body, region=region, codec=codec, access_key=key, may_wait=True
        )

    def _error(self, scope: Scope, headers: Headers, status: int, message: str) -> Answer:
        """Return an error in the protocol of the request, so that an SDK shows the message."""
        code = _CODES[status]
        if speaks_cbor(scope):
            target = target_of(scope)
            service = target.partition(".")[0]
            return as_cbor(json_error(code, message, status, service), target)
        if b"x-amz-target" in headers:
            codec = self._codec(headers) or JsonCodec()
            body = codec.encode_error(code, message)
            return Answer(status, self._headers(codec.content_type, code), body)
        if b"authorization" in headers:
            return xml_error(code, message, status)
        return text(status, message)

    def _codec(self, headers: Headers) -> Codec | None:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        return self._codecs.get(kind)

    async def _finish(
        self, scope: Scope, receive: Receive, send: Send, outcome: CallResult, headers: Headers
    ) -> None:
        if outcome.waiting is not None:
            result = await result_of(self._kinesis, outcome.waiting, receive)
            if result is None:
                return
            outcome = result
        try:
            if outcome.delay_ms:
                await asyncio.sleep(outcome.delay_ms / 1000)
            if outcome.dropped:
                await _drop(scope, receive)
                return
            codec = self._codec(headers) or JsonCodec()
            if outcome.subscription is None:
                answered = self._headers(codec.content_type, outcome.error)
                await _send(scope, send, Answer(outcome.status, answered, outcome.body))
                return
            answered = self._headers(EVENT_STREAM, None)
            await send({"type": "http.response.start", "status": 200, "headers": answered})
            push = Push(self._kinesis, outcome.subscription, codec, receive, send)
            if not await push.run(outcome.cut_after):
                await _cut(scope, receive, send)
        finally:
            if outcome.subscription is not None:
                self._kinesis.release(outcome.subscription)

    def _headers(self, content_type: str, error: str | None) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-amzn-requestid", str(uuid.uuid4()).encode()),
            (b"content-type", content_type.encode()),
            (b"date", self._date()),
            *([(b"x-amzn-errortype", error.encode())] if error else []),
        ]

    def _date(self) -> bytes:
        return _date(self._kinesis.clock() // 1000)


@functools.lru_cache(8)
def _date(second: int) -> bytes:
    return email.utils.formatdate(second, usegmt=True).encode()


def _is_kinesis(target: str, signed: SignedBy) -> bool:
    """Return True for a target of Kinesis, and for an unknown one in a call signed for Kinesis.

    Such a call gets Kinesis' error, in the encoding of Kinesis' clients.
    """
    return target.startswith("Kinesis_") or (
        signed.service == "kinesis" and not target.startswith("DynamoDB_")
    )


def _length(scope: Scope, headers: Headers) -> int | None:
    """Return the length of the request's body; None if it is not declared."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit():
        return int(declared)
    if scope["http_version"] == "2" or b"transfer-encoding" in headers:
        return None
    return 0


def _refusal(codec: Codec, error: KinesisError) -> CallResult:
    return CallResult(error.status, codec.encode_error(error.code, error.message), error.code)


async def _send(scope: Scope, send: Send, answer: Answer) -> None:
    headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    if scope["method"] != "HEAD" and KEEP_HEAD in scope["state"]:
        scope["state"][KEEP_HEAD]()
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    # asyncio copies what the socket does not take at once; of a view, once instead of twice.
    await send({"type": "http.response.body", "body": memoryview(answer.body)})


async def _cut(scope: Scope, receive: Receive, send: Send) -> None:
    """Reset the connection once the buffered bytes have been written to the socket."""
    transport: asyncio.Transport = scope["state"][TRANSPORT]
    transport.set_write_buffer_limits(0)
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await _drop(scope, receive)


async def _drop(scope: Scope, receive: Receive) -> None:
    """Reset the connection (RST, not FIN), as a failing load balancer or network does.

    On HTTP/2 this ends every other call of the connection too.
    """
    transport: asyncio.Transport = scope["state"][TRANSPORT]
    if not transport.is_closing():  # else the client has disconnected, and the socket may be closed
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABRUPT)
    transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass
