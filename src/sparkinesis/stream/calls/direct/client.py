"""A client that makes the calls of many shards directly, and all others by botocore's client."""

from __future__ import annotations

import functools
import ssl
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import botocore.parsers
import msgspec
from botocore import xform_name
from botocore.awsrequest import HeadersDict
from botocore.exceptions import ChecksumError, ClientError, HTTPClientError
from botocore.utils import get_environ_proxies
from zlib_ng.zlib_ng import crc32

from sparkinesis.metrics.health.signs import CONNECTING, CREDENTIALS, expect
from sparkinesis.stream.calls.direct.connection import Answer, Connections, tls_context, trusted
from sparkinesis.stream.calls.direct.learned import LearnedRequest, learn
from sparkinesis.stream.calls.direct.signature import Scope, Signer
from sparkinesis.stream.service_time import second_of

Decoder = Callable[[Answer], dict[str, Any]]
"""Makes an operation's answer, without ``ResponseMetadata``, of a successful HTTP answer."""

_SKEW_CODES = frozenset(
    {
        "RequestTimeTooSkewed",
        "RequestExpired",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "RequestInTheFuture",
        "AuthFailure",
    }
)
_LEAST_SKEW = 60.0
"""Seconds. The service accepts signatures of five minutes before and after its time."""


class _Prepared(Exception):  # noqa: N818 - botocore stops for it, and nobody else sees it
    """botocore has prepared a request that can be repeated."""

    def __init__(self, learned: LearnedRequest) -> None:
        super().__init__("the request is sent directly")
        self.learned = learned


class DirectClient:
    """Calls of one service. For any thread.

    For the operations in ``decoders``, botocore's client prepares the first request of each kind,
    and finds endpoint and headers as the user's settings have it. That request and all later ones
    are sent by this client, with their own bodies and signatures. Behind a proxy, and where
    botocore does not sign by signature version 4, all calls go through botocore.

    streamed: the operations of ``decoders`` whose answers are event streams.

    Errors are botocore's. There are no retries, but for a request that the service has refused
    because this machine's clock is wrong: that one is sent again with the service's time, as are
    all later ones, botocore's included.
    """

    def __init__(
        self,
        client: Any,
        session: Any,
        decoders: Mapping[str, Decoder],
        *,
        most_idle: int,
        streamed: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._session = session
        self._decoders = decoders
        self._streamed = frozenset(streamed)
        self._most_idle = most_idle
        self._clock = clock
        self._credentials = session.get_credentials()
        self._proxies = get_environ_proxies(client.meta.endpoint_url)
        self._trusted = trusted(session)
        self._learned: dict[object, LearnedRequest | None] = {}
        """None for a kind of request that botocore has to send."""
        self._connections: dict[str, Connections] = {}
        self._signers: dict[Scope, Signer] = {}
        self._skew = 0.0
        """Seconds by which the service's clock is ahead of this machine's."""
        self._thread = threading.local()
        self._service = client.meta.service_model
        self._operations: Mapping[str, str] = client.meta.method_to_api_mapping
        # Before 1.36, botocore has the protocol in the metadata only.
        protocol = getattr(self._service, "resolved_protocol", self._service.metadata["protocol"])
        self._parser = botocore.parsers.create_parser(protocol)
        event = f"before-send.{self._service.service_id.hyphenize()}"
        client.meta.events.register_first(event, self._before_send)
        for operation in decoders:
            # botocore calls the handlers of one operation first. Another one of those may send.
            client.meta.events.register_first(f"{event}.{operation}", self._before_send)
        if not _looks_for_endpoints(client, session):
            for operation in decoders:
                setattr(self, xform_name(operation), functools.partial(self._call, operation))

    def __getattr__(self, name: str) -> Any:
        """Return the method of botocore's client for any other operation."""
        if name.startswith("__") or name == "_client":
            raise AttributeError(name)
        found = getattr(self._client, name)
        if name not in self._operations:
            return found

        def call(**request: Any) -> Any:
            return self._by_botocore(found, request)

        return call

    def close(self) -> None:
        """Close all idle connections."""
        for connections in list(self._connections.values()):
            connections.close()
        self._client.close()

    def _call(self, operation: str, /, **request: Any) -> dict[str, Any]:
        expect(CREDENTIALS)
        keys = None if self._credentials is None else self._credentials.get_frozen_credentials()
        # Requests with another key may go to another endpoint.
        key = (
            operation,
            getattr(keys, "account_id", None),
            request.get("StreamARN"),
            request.get("ConsumerARN"),
            request.get("TableName"),
        )
        try:
            learned = self._learned[key]
        except KeyError:
            try:
                answer: dict[str, Any] = self._by_botocore(
                    getattr(self._client, xform_name(operation)), request, may_prepare=True
                )
            except _Prepared as prepared:
                learned = self._learned[key] = prepared.learned
            else:
                self._learned[key] = None
                return answer
        if learned is None:
            made: dict[str, Any] = self._by_botocore(
                getattr(self._client, xform_name(operation)), request
            )
            return made
        return self._send(learned, keys, operation, encode(operation, request))

    # --- by botocore

    def _by_botocore(
        self, method: Callable[..., Any], request: Mapping[str, Any], *, may_prepare: bool = False
    ) -> Any:
        config = self._client.meta.config
        expect(max(CREDENTIALS, CONNECTING + config.connect_timeout + config.read_timeout))
        self._thread.may_prepare = may_prepare
        skew = self._skew
        try:
            return method(**request)
        except ClientError as error:
            if not self._corrects_clock(error, skew):
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
        if self._skew and (signed := learn(request)) is not None:
            keys = self._credentials.get_frozen_credentials()
            body = request.body or b""
            date, proof = self._signer(signed.scope).sign(keys, signed.canonical, body)
            request.headers["X-Amz-Date"] = date
            request.headers["Authorization"] = proof

    # --- directly

    def _send(
        self, learned: LearnedRequest, keys: Any, operation: str, body: bytes
    ) -> dict[str, Any]:
        connections = self._connections.get(learned.url) or self._connections_of(learned.url)
        signer = self._signer(learned.scope)
        exchange = connections.begin if operation in self._streamed else connections.exchange
        for is_last in (False, True):
            skew = self._skew
            date, proof = signer.sign(keys, learned.canonical, body)
            token = f"X-Amz-Security-Token: {keys.token}\r\n" if keys.token else ""
            head = (
                f"X-Amz-Date: {date}\r\n{token}Authorization: {proof}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            if head.count("\n") != (5 if token else 4) or not head.isascii():
                raise _invalid_header()
            answer = exchange(learned.head + head.encode() + body)
            if answer.status < 300:
                return self._decoded(operation, answer)
            error = self._error(operation, answer)
            if is_last or not self._corrects_clock(error, skew):
                raise error
        raise AssertionError("unreachable")

    def _decoded(self, operation: str, answer: Answer) -> dict[str, Any]:
        checksum = answer.headers.get("x-amz-crc32")
        if checksum is not None and (actual := crc32(answer.body)) != int(checksum):
            raise ChecksumError(
                checksum_type="crc32", expected_checksum=int(checksum), actual_checksum=actual
            )
        found = self._decoders[operation](answer)
        found["ResponseMetadata"] = {
            "RequestId": answer.headers.get("x-amzn-requestid", ""),
            "HTTPStatusCode": answer.status,
            "HTTPHeaders": answer.headers,
            "RetryAttempts": 0,
        }
        return found

    def _error(self, operation: str, answer: Answer) -> ClientError:
        """Return botocore's error for an answer, made by botocore's parser."""
        shape = self._service.operation_model(operation).output_shape
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
        kind = self._client.exceptions.from_code(code)
        error: ClientError = kind(parsed, operation)
        return error

    def _corrects_clock(self, error: ClientError, used: float) -> bool:
        """Adopt the service's time if the request was refused for its date; return True then.

        used: the correction with which the request was signed.
        """
        if error.response.get("Error", {}).get("Code") not in _SKEW_CODES:
            return False
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        second = second_of(headers.get("date"))
        if second is None or abs(second - self._clock() - used) < _LEAST_SKEW:
            return False
        self._skew = second - self._clock()
        return True

    def _service_clock(self) -> float:
        return self._clock() + self._skew

    def _signer(self, scope: Scope) -> Signer:
        signer = self._signers.get(scope)
        if signer is None:
            signer = self._signers.setdefault(scope, Signer(scope, self._service_clock))
        return signer

    def _connections_of(self, url: str) -> Connections:
        config = self._client.meta.config
        context: ssl.SSLContext | None = None
        if url.startswith("https:"):
            context = tls_context(self._trusted, url)
        connections = Connections(
            url,
            context,
            connect_timeout=config.connect_timeout,
            read_timeout=config.read_timeout,
            most_idle=self._most_idle,
            keep_alive_probes=bool(self._session.get_config_variable("tcp_keepalive")),
        )
        return self._connections.setdefault(url, connections)


def _looks_for_endpoints(client: Any, session: Any) -> bool:
    """Return True if the user wants botocore to ask DynamoDB for endpoints, which change."""
    wanted = str(session.get_config_variable("endpoint_discovery_enabled")).strip().lower()
    return wanted == "true" and client.meta.service_model.endpoint_discovery_operation is not None


def _invalid_header() -> HTTPClientError:
    """Return botocore's error for credentials that would end a header. It does not show them."""
    return HTTPClientError(
        error=ValueError("the access key or the session token has a character that no header has")
    )


_DECODER = msgspec.json.Decoder(dict[str, Any])


def decode_object(answer: Answer) -> dict[str, Any]:
    """Decode an answer's body; an empty one is an empty object.

    Raises botocore's `HTTPClientError`, which is retried, for a body that is no JSON object: such
    an answer is of a proxy or of another server. The error shows how the body starts.
    """
    try:
        return _DECODER.decode(answer.body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        start = bytes(answer.body[:60])
        raise HTTPClientError(
            error=ValueError(f"the answer is no JSON object, and starts with {start!r} ({error})")
        ) from error


def encode(operation: str, request: Mapping[str, Any]) -> bytes:
    """Return a request's body: JSON, with blobs in base64 and times in epoch seconds."""
    if operation in _WITH_TIMES:
        request = {name: _with_epochs(value) for name, value in request.items()}
    return msgspec.json.encode(request)


_WITH_TIMES = frozenset({"GetShardIterator", "ListShards", "SubscribeToShard"})


def _with_epochs(value: Any) -> Any:
    if isinstance(value, datetime):
        seconds = value.timestamp()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, dict):
        return {name: _with_epochs(inner) for name, inner in value.items()}
    return value
