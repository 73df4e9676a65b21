"""A client that makes the calls of many shards directly, and all others by botocore's client."""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from botocore.exceptions import BotoCoreError, ChecksumError, ClientError, HTTPClientError
from zlib_ng.zlib_ng import crc32

from sparkinesis.metrics.health.liveness import CREDENTIALS, expect
from sparkinesis.stream.calls.answers.guards import USUAL, Bound, UnreadError, decode_object
from sparkinesis.stream.calls.direct.connection import ConnectionPools, SentRequest, trusted
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer
from sparkinesis.stream.calls.direct.signed_request import LearnedRequest, Signers
from sparkinesis.stream.calls.direct.usual import UsualSettings
from sparkinesis.stream.calls.direct.usual_errors import usual_error
from sparkinesis.stream.calls.retry import error_code, result_of, status_of

if TYPE_CHECKING:
    from sparkinesis.stream.calls.direct.by_botocore import ByBotocore

Decoder = Callable[[HttpAnswer], dict[str, Any]]
"""Makes an operation's answer, without ``ResponseMetadata``, of a successful HTTP answer."""

_log = logging.getLogger(__name__)


# botocore's client took 86 % of the CPU of the calls that grow with shards and time, and importing
# it takes longer than all the rest of a start. But a user's settings mean what they mean to boto3,
# and botocore alone knows all of them. So nothing that botocore decides is decided here:
#
# - Its first request of a kind is taken before it is sent, and repeated with other bodies: the same
#   endpoint, the same headers, the same scope of the signature. One that cannot be repeated so is
#   left to botocore, and so are all others of its kind (None in ``_learned``).
# - A kind is more than an operation. The account of the credentials and the ARNs of a request may
#   lead to another endpoint, so they are parts of the key. A key that lacked one would send calls
#   on one stream to the endpoint of another.
# - Where nothing unusual is set, the first request is known without botocore (`UsualSettings`). A
#   setting that is not known there, such as a new variable of botocore's, turns that off.
# - botocore finds and renews the credentials, but for keys in the environment; its parser makes the
#   errors, but for those that the services' models name (`usual_error`).
# - Tests play the same settings and faults through both clients, and compare requests and results.
#
# CBOR is what the SDKs for Java send to Kinesis, and botocore does not have it. AWS's answers in it
# are described nowhere, and other servers have none, or wrong ones. So until a server has given one
# answer in CBOR that is understood, whatever else it says to a request in CBOR is asked again in
# JSON, and if that succeeds, all later calls are in JSON. Only what cannot come from the encoding
# is believed at once. After such an answer, its errors are errors, but for those of a server that
# has no CBOR: there may be another one behind the same address.
class DirectClient:
    """Calls of one service. For any thread.

    For the operations in ``decoders``, botocore's client prepares the first request of each kind,
    and finds endpoint and headers as the user's settings have it. That request and all later ones
    are sent by this client, with their own bodies and signatures. Behind a proxy, and where
    botocore does not sign by signature version 4, all calls go through botocore.

    session, client: return botocore's session, and open botocore's client of it. usual: the
    settings, if they are known without botocore. Then botocore's session is opened only for
    credentials that are not in the environment, and its client for other operations and for errors.
    bounds: those of operations whose answers may be long, or must come soon. streamed: the
    operations of ``decoders`` whose answers are event streams.

    Errors are botocore's. There are no retries, but for a request that the service has refused
    because this machine's clock is wrong: that one is sent again with the service's time, as are
    all later ones, botocore's included.
    """

    def __init__(
        self,
        session: Callable[[], Any],
        client: Callable[[Any], Any],
        decoders: Mapping[str, Decoder],
        *,
        most_idle: int,
        read_timeout: float,
        bounds: Mapping[str, Bound],
        streamed: Collection[str] = (),
        in_cbor: Mapping[str, Decoder] | None = None,
        usual: UsualSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._client = client
        self._decoders = decoders
        self._bounds = bounds
        self._streamed = frozenset(streamed)
        self._in_cbor = in_cbor or {}
        self._speaks_cbor: bool | None = None
        """None until the server has shown it."""
        self._usual = usual
        self._signers = Signers(clock)
        self._learned: dict[object, LearnedRequest | None] = {}
        """None for a kind of request that botocore has to send."""
        self._botocore: ByBotocore | None = None
        self._credentials: Any = None if usual is None else usual.keys
        if self._credentials is None:
            self._credentials = session().get_credentials()
        certificates, has_probes = (
            (usual.trusted, False) if usual is not None else _network(session())
        )
        self._pools = ConnectionPools(
            certificates,
            read_timeout=read_timeout,
            most_idle=most_idle,
            keep_alive_probes=has_probes,
        )
        if usual is None and self._by_botocore().discovers_endpoints:
            return
        for operation in decoders:
            setattr(self, method_name(operation), functools.partial(self._call, operation))
        for operation in self._in_cbor:
            name = f"{method_name(operation)}_in_cbor"
            setattr(self, name, functools.partial(self._call_in_cbor, operation))

    def __getattr__(self, name: str) -> Any:
        """Return the method of botocore's client for any other operation."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._by_botocore().attribute(name)

    def close(self) -> None:
        """Close all idle connections."""
        self._pools.close()
        if self._botocore is not None:
            self._botocore.close()

    def _by_botocore(self) -> ByBotocore:
        """Return botocore's client, which the first call opens; two threads may each open one."""
        if self._botocore is None:
            from sparkinesis.stream.calls.direct.by_botocore import ByBotocore, send_by  # noqa: PLC0415 - slow to import

            session = self._session()
            client = self._client(session)
            send_by(
                client,
                lambda url, request, bound: self._pools.of(url).exchange(request, bound),
                self._bounds,
            )
            self._botocore = ByBotocore(client, session, self._decoders, self._signers)
        return self._botocore

    def _call(self, operation: str, /, **request: Any) -> dict[str, Any]:
        learned, keys = self._learn(operation, request)
        if isinstance(learned, dict):
            return learned
        if learned is None:
            return self._by_botocore().call(operation, request)
        return self._send(learned, keys, operation, encode(operation, request))

    def send_ahead(
        self, operation: str, request: Mapping[str, Any]
    ) -> Callable[[], dict[str, Any]] | None:
        """Send a call's request; return the function that waits for its answer, to be called once.

        None if the call is to be made as usual: it is the first one of its kind, or botocore's, or
        no connection is kept that it could use.
        """
        key, keys = self._kind(operation, request)
        learned = self._learned.get(key)
        if learned is None:
            return None
        body = encode(operation, request)
        pool, bound = self._pools.of(learned.url), self._bounds.get(operation, USUAL)
        skew = self._signers.skew
        sent = pool.send_ahead(self._signed(learned, keys, body), bound)
        if sent is None:
            return None
        return functools.partial(self._send, learned, keys, operation, body, sent=(sent, skew))

    def _call_in_cbor(self, operation: str, /, **request: Any) -> dict[str, Any]:
        from sparkinesis.stream.calls.answers.cbor import encode_request  # noqa: PLC0415 - no start needs it

        if self._speaks_cbor is False:
            return self._call(operation, **request)
        learned, keys = self._learn(operation, request, in_cbor=True)
        if isinstance(learned, dict):
            return learned
        if learned is None:
            return self._by_botocore().call(operation, request)
        try:
            return self._send(learned, keys, operation, encode_request(request), in_cbor=True)
        except UnreadError as error:
            why = str(error)
        except ClientError as error:
            if not self._may_refuse_cbor(error, operation):
                raise
            why = str(error)
        except BotoCoreError:
            # The server may have hung up on it.
            if self._speaks_cbor is None:
                self._speaks_cbor = False
            raise
        answer = self._call(operation, **request)
        self._speaks_cbor = False
        said = " ".join(why.split())  # an error may be a page
        _log.info("%s is asked for JSON from now on, and not for CBOR: %.300s", learned.url, said)
        return answer

    def _may_refuse_cbor(self, error: ClientError, operation: str) -> bool:
        """Return True if an error in place of an answer may be one of the encoding."""
        if self._speaks_cbor:
            return error_code(error) in _REFUSALS or status_of(error) == _UNSUPPORTED
        return result_of(error, operation) not in {"throttled", "expired"}

    def _kind(
        self, operation: str, request: Mapping[str, Any], *, in_cbor: bool = False
    ) -> tuple[tuple[object, ...], Any]:
        """Return the kind of a call's request, as a key, and the credentials."""
        expect(CREDENTIALS)
        keys = None if self._credentials is None else self._credentials.get_frozen_credentials()
        account = getattr(keys, "account_id", None)
        # Requests with another key may go to another endpoint.
        key = (
            operation,
            in_cbor,
            account,
            request.get("StreamARN"),
            request.get("ConsumerARN"),
            request.get("QueueARN"),
            request.get("ResourceARN"),
            request.get("TableName"),
        )
        return key, keys

    def _learn(
        self, operation: str, request: Mapping[str, Any], *, in_cbor: bool = False
    ) -> tuple[LearnedRequest | dict[str, Any] | None, Any]:
        """Return a call's request and the credentials.

        In the request's place, the answer, if botocore had to be asked and has sent it; None if
        botocore has to send it.
        """
        key, keys = self._kind(operation, request, in_cbor=in_cbor)
        try:
            return self._learned[key], keys
        except KeyError:
            learned = None
        account = getattr(keys, "account_id", None)
        if self._usual is not None and keys is not None and account is None:
            learned = self._usual.request(operation, request)
        if learned is None:
            prepared = self._by_botocore().prepare(operation, request)
            if isinstance(prepared, dict):
                self._learned[key] = None
                return prepared, keys
            learned = prepared
        if in_cbor:
            learned = learned.in_type(_CBOR)
        self._learned[key] = learned
        return learned, keys

    def _send(
        self,
        learned: LearnedRequest,
        keys: Any,
        operation: str,
        body: bytes,
        *,
        in_cbor: bool = False,
        sent: tuple[SentRequest, float] | None = None,
    ) -> dict[str, Any]:
        """Make a call. sent: its request, if that was sent, and the correction of its signature."""
        pool = self._pools.by_url.get(learned.url) or self._pools.of(learned.url)
        bound = self._bounds.get(operation, USUAL)
        exchange = pool.begin if operation in self._streamed else pool.exchange
        for is_last in (False, True):
            if sent is not None:
                answer, skew = pool.receive(sent[0]), sent[1]
                sent = None
            else:
                skew = self._signers.skew
                answer = exchange(self._signed(learned, keys, body), bound)
            if answer.status < 300:
                return self._decoded(operation, answer, in_cbor)
            refusal = error_in_json(answer) if in_cbor else answer
            error = usual_error(learned.scope.service, operation, refusal)
            error = error or self._by_botocore().error(operation, refusal)
            if is_last or not self._signers.corrects_clock(error, skew):
                raise error
        raise AssertionError("unreachable")

    def _signed(self, learned: LearnedRequest, keys: Any, body: bytes) -> bytes:
        signer = self._signers.of(learned.scope)
        date, proof = signer.sign(keys, learned.canonical, body)
        token = f"X-Amz-Security-Token: {keys.token}\r\n" if keys.token else ""
        head = (
            f"X-Amz-Date: {date}\r\n{token}Authorization: {proof}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        if head.count("\n") != (5 if token else 4) or not head.isascii():
            raise _invalid_header()
        return learned.head + head.encode() + body

    def _decoded(self, operation: str, answer: HttpAnswer, in_cbor: bool) -> dict[str, Any]:
        checksum = answer.headers.get("x-amz-crc32")
        if checksum is not None and (actual := crc32(answer.body)) != int(checksum):
            raise ChecksumError(
                checksum_type="crc32", expected_checksum=int(checksum), actual_checksum=actual
            )
        is_cbor = in_cbor and answer.body[:1] != b"{"
        found = (self._in_cbor if is_cbor else self._decoders)[operation](answer)
        if in_cbor:
            self._speaks_cbor = is_cbor
        found["ResponseMetadata"] = {
            "RequestId": answer.headers.get("x-amzn-requestid", ""),
            "HTTPStatusCode": answer.status,
            "HTTPHeaders": answer.headers,
            "RetryAttempts": 0,
        }
        return found


def _network(session: Any) -> tuple[Any, bool]:
    """Return the certificates to trust, and whether kept connections are probed, by settings."""
    return trusted(session), bool(session.get_config_variable("tcp_keepalive"))


def method_name(operation: str) -> str:
    """Return the name of an operation's method, which is that of botocore's client."""
    return re.sub("(?<!^)(?=[A-Z])", "_", operation).lower()


def _invalid_header() -> HTTPClientError:
    """Return botocore's error for credentials that would end a header. It does not show them."""
    return HTTPClientError(
        error=ValueError("the access key or the session token has a character that no header has")
    )


_CBOR = "application/x-amz-cbor-1.1"
_REFUSALS = frozenset({"SerializationException", "UnknownOperationException"})
_UNSUPPORTED = 415


def error_in_json(answer: HttpAnswer) -> HttpAnswer:
    """Return an answer that is an error in JSON, if it is one in CBOR."""
    from sparkinesis.stream.calls.answers.cbor import read_object  # noqa: PLC0415 - as above

    try:
        said = read_object(answer.body)
    except UnreadError:  # no JSON and no page of a proxy is CBOR
        return answer
    return msgspec.structs.replace(answer, body=msgspec.json.encode(said))


_DECODER = msgspec.json.Decoder(dict[str, Any])


def decode_answer(answer: HttpAnswer) -> dict[str, Any]:
    """Decode an answer without a form of its own. Raises what `decode_object` raises."""
    return decode_object(answer.body, _DECODER)


def encode(operation: str, request: Mapping[str, Any]) -> bytes:
    """Return a request's body: JSON, with blobs in base64 and times in epoch seconds."""
    if operation in _WITH_TIMES:
        request = {name: _with_epochs(value) for name, value in request.items()}
    return msgspec.json.encode(request)


_WITH_TIMES = frozenset({"CreateQueue", "GetShardIterator", "ListShards", "SubscribeToShard"})


def _with_epochs(value: Any) -> Any:
    if isinstance(value, datetime):
        seconds = value.timestamp()
        return int(seconds) if seconds.is_integer() else seconds
    if isinstance(value, dict):
        return {name: _with_epochs(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_epochs(inner) for inner in value]
    return value
