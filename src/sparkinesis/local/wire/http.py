"""The HTTP endpoint: serves Kinesis, and forwards the calls of other services to moto.

An ASGI application for HTTP/1.1 (`http1`) and HTTP/2 (`http2`). Resetting a connection without a
response is not part of ASGI and uses the transport directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import re
import socket
import struct
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from sparkinesis.local.encoding import event_stream
from sparkinesis.local.encoding.cbor import CborCodec
from sparkinesis.local.encoding.codec import Codec, JsonCodec
from sparkinesis.local.errors import KinesisError, missing_token, unknown_operation
from sparkinesis.local.faults import Fault
from sparkinesis.local.kinesis import DEFAULT_REGION, LocalKinesis, Outcome
from sparkinesis.local.wire import statement_faults
from sparkinesis.local.wire.push import Push

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]

# More than the largest PutRecords: 10 MiB in base64, 500 keys, and JSON around them.
_MAX_BODY = 32 << 20
_CREDENTIAL = re.compile(rb"Credential=([^/,\s]+)/\d{8}/([a-z0-9-]+)/")
_QUERY_CODE = re.compile(rb"<Code>(\w+)</Code>")
_SERVICE = "Kinesis_20131202"
_ABRUPT = struct.pack("ii", 1, 0)
TRANSPORT = "sparkinesis.transport"


class Answer(msgspec.Struct, frozen=True):
    """An HTTP response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Backend(Protocol):
    """The server of all calls that are not Kinesis' (see `dynamodb`)."""

    async def forward(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> Answer: ...


class _NamesTable(msgspec.Struct):
    table_name: str | None = msgspec.field(default=None, name="TableName")


class _ClientLeftError(Exception):
    """The client disconnected before it had sent its whole request."""


class App:
    """The ASGI application. Cancelling a call's task, as on shutdown, ends its response."""

    def __init__(self, kinesis: LocalKinesis, backend: Backend) -> None:
        self._kinesis = kinesis
        self._backend = backend
        self._codecs: dict[bytes, Codec] = {
            b"application/x-amz-json-1.1": JsonCodec(),
            b"application/json": JsonCodec(),
            b"application/x-amz-cbor-1.1": CborCodec(),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The connection is closed by then, and this is not a failure to log.
        with contextlib.suppress(asyncio.CancelledError, _ClientLeftError):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = dict(scope["headers"])
        body = await _read(receive)
        if body is None:
            await _send(send, Answer(413, [], b""))
            return
        target = _target(headers)
        if target.startswith("Kinesis_"):
            outcome = self._serve(target, headers, body)
            await self._finish(scope, receive, send, outcome, headers)
        elif scope["method"] == "GET" and scope["path"] == "/":
            await _send(send, Answer(200, [], b'{"services":["kinesis","dynamodb","sts"]}\n'))
        else:
            await self._pass_on(scope, receive, send, body)

    def _serve(self, target: str, headers: Headers, body: bytes) -> Outcome:
        codec = self._codec(headers)
        if codec is None:
            return Outcome(415, error="UnsupportedMediaType")
        service, _, operation = target.partition(".")
        if service != _SERVICE:
            return _refusal(codec, unknown_operation(target))
        if b"authorization" not in headers:
            return _refusal(codec, missing_token())
        region, key = _signer(headers)
        return self._kinesis.serve(operation, body, region=region, codec=codec, access_key=key)

    def _codec(self, headers: Headers) -> Codec | None:
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        return self._codecs.get(kind)

    async def _finish(
        self, scope: Scope, receive: Receive, send: Send, outcome: Outcome, headers: Headers
    ) -> None:
        try:
            if outcome.delay_ms:
                await asyncio.sleep(outcome.delay_ms / 1000)
            if outcome.dropped:
                await _drop(scope, receive)
                return
            codec = self._codec(headers) or JsonCodec()
            if outcome.subscription is None:
                answered = self._headers(codec.content_type, outcome.error)
                await _send(send, Answer(outcome.status, answered, outcome.body))
                return
            answered = self._headers(event_stream.CONTENT_TYPE, None)
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

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Forward another service's call; the fault plan and the call log apply to it too."""
        headers: Headers = dict(scope["headers"])
        service, _, operation = _target(headers).partition(".")
        region, key = _signer(headers)
        table = _table(body) if operation else None
        operation = operation or _action(body)
        fault = self._kinesis.fault_for(operation, region, table)
        if fault.delay_ms:
            await asyncio.sleep(fault.delay_ms / 1000)
        error: str | None = "Dropped" if fault.drop else None
        if fault.fails_whole_call:
            error = error or fault.code
        answer = Answer(0, [], b"")
        if fault.drop != "before":
            if not fault.fails_whole_call or fault.takes_effect:
                answer = await self._forward(scope, operation, body, fault)
                error = error or _error_code(answer)
            if fault.fails_whole_call:
                error_answer = _json_1_0_error if service else _query_error
                answer = error_answer(service, fault.code or "", fault.message, fault.status)
        self._kinesis.log_call(operation, region, table, error, key)
        if fault.drop:
            await _drop(scope, receive)
        else:
            await _send(send, answer)

    async def _forward(self, scope: Scope, operation: str, body: bytes, fault: Fault) -> Answer:
        """Return the backend's response, with the fault's errors for statements of a batch."""
        path = scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode("latin-1")
        is_batch_fault = (
            bool(fault.entries and fault.code) and operation == statement_faults.OPERATION
        )
        sent = statement_faults.without_failing(body, fault) if is_batch_fault else body
        if sent is None:
            answer = Answer(200, [(b"content-type", b"application/x-amz-json-1.0")], b"")
        else:
            answer = await self._backend.forward(scope["method"], path, scope["headers"], sent)
        if not is_batch_fault or answer.status != 200:
            return answer
        merged = statement_faults.with_errors(
            body, answer.body if sent is not None else None, fault
        )
        # moto's checksum is for the body before the merge.
        headers = [pair for pair in answer.headers if pair[0] != b"x-amz-crc32"]
        return Answer(200, headers, merged)

    def _date(self) -> bytes:
        return email.utils.formatdate(self._kinesis.clock() / 1000, usegmt=True).encode()


def _target(headers: Headers) -> str:
    return headers.get(b"x-amz-target", b"").decode("latin-1")


def _signer(headers: Headers) -> tuple[str, str | None]:
    """Return the region of the signature's credential scope, and the access key's id."""
    found = _CREDENTIAL.search(headers.get(b"authorization", b""))
    return (found[2].decode(), found[1].decode()) if found else (DEFAULT_REGION, None)


def _action(body: bytes) -> str:
    """Return the operation of a request in AWS's query protocol, which STS uses."""
    return dict(parse_qsl(body.decode("latin-1"))).get("Action", "Query")


def _refusal(codec: Codec, error: KinesisError) -> Outcome:
    return Outcome(error.status, codec.encode_error(error.code, error.message), error.code)


def _table(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=_NamesTable).table_name
    except msgspec.DecodeError:
        return None


def _json_1_0_error(service: str, code: str, message: str, status: int) -> Answer:
    prefix = "com.amazonaws.dynamodb.v20120810#" if service.startswith("DynamoDB") else ""
    body = msgspec.json.encode({"__type": prefix + code, "message": message})
    return Answer(status, [(b"content-type", b"application/x-amz-json-1.0")], body)


def _query_error(_: str, code: str, message: str, status: int) -> Answer:
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Answer(status, [(b"content-type", b"text/xml")], f"{body}</ErrorResponse>".encode())


def _error_code(answer: Answer) -> str | None:
    if answer.status < 400:
        return None
    try:
        kind = msgspec.json.decode(answer.body)["__type"]
    except (msgspec.DecodeError, KeyError, TypeError):
        found = _QUERY_CODE.search(answer.body)
        return found[1].decode() if found else str(answer.status)
    return str(kind).rpartition("#")[2]


async def _read(receive: Receive) -> bytes | None:
    """Read the whole body; return None if it is too large. Raises: _ClientLeftError."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientLeftError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > _MAX_BODY:
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _send(send: Send, answer: Answer) -> None:
    headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


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
