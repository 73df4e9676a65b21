"""A call on a stream: made again after a failure that passes, measured, its errors explained.

It is made with the client that this process has for the stream's place and role. The calls that
grow with shards and time are made directly (`sparkinesis.stream.calls.direct`). The others, and
behind a proxy all of them, are made by botocore. Its parser would take most of a reader's time per
page. botocore's hook ``before-parse`` permits custom parsing: our handlers take the answer's body
and leave a small document to the parser.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.metrics.catalogue import CALL_DURATION, CALL_RETRIES, ITERATORS_EXPIRED
from sparkinesis.metrics.health.signs import expect
from sparkinesis.metrics.metrics import FAILED, OFF, Metrics, measured
from sparkinesis.metrics.tracing import tracing_of
from sparkinesis.stream.address import CredentialSource, StreamAddress
from sparkinesis.stream.calls.answers.decoding import data_size, decode_page
from sparkinesis.stream.calls.answers.guards import MIB, Bound, understood
from sparkinesis.stream.calls.direct.direct_client import Decoder, DirectClient, decode_answer
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer
from sparkinesis.stream.calls.direct.usual import usual_settings
from sparkinesis.stream.calls.explain import explain, is_unknown_position
from sparkinesis.stream.calls.retry import Attempts, Backoff, Retries, result_of
from sparkinesis.stream.calls.session import READ_TIMEOUT, client_of, open_session
from sparkinesis.stream.position import Position

_T = TypeVar("_T")


class StreamCaller:
    """Makes calls on one stream. For any thread.

    Errors: `StreamNotFoundError`, `AccessDeniedError`, `DataLossError` (the shard or the position
    no longer exists), `ExpiredIteratorError`, and `ServiceError` for all other failures, once the
    retries are used up.

    metrics: takes the measurements of the calls, by the clock of ``retry``.
    """

    def __init__(self, address: StreamAddress, retry: Backoff, metrics: Metrics) -> None:
        self.address = address
        self.metrics = metrics
        self._retry = retry
        self._tracing = tracing_of(metrics)

    def attempts(self) -> Attempts:
        """Return this client's retries, for a reader that does not hold a thread while it waits."""
        return Attempts(self._retry)

    def wait(self, seconds: float) -> None:
        """Wait as long as a retry does, in a thread that is not expected before."""
        expect(seconds)
        self._retry.sleep(seconds)

    def call(
        self,
        operation: str,
        call: Callable[[Any], _T],
        *,
        shard_id: str | None = None,
        position: Position | None = None,
        budget: AbstractContextManager[object] | None = None,
        retry: Retries | None = None,
    ) -> _T:
        """Make ``call`` with boto3's client, with retries; each attempt enters ``budget``.

        Raises sparkinesis's error for the last error of botocore, and what ``retry`` raises.
        """
        try:
            client = call_client(self.address)
            measured_call = self._measured(operation, shard_id, call)
            attempt = functools.partial(measured_call, client)
            if budget is not None:
                attempt = functools.partial(_within, budget, attempt)
            return (retry or self._retry).call(
                attempt,
                lambda error: self.count_retry(operation, error),
                lambda error: is_unknown_position(error, position),
            )
        except (ClientError, BotoCoreError) as error:
            explained = explain(error, operation, self.address, shard_id, position)
            # `from None`: the text quotes the service, and a second traceback would hide it.
            raise explained from None

    def call_once(
        self, operation: str, call: Callable[[Any], _T], shard_id: str | None = None
    ) -> _T:
        """Make ``call`` with boto3's client, in one attempt. Raises botocore's errors."""
        return self._measured(operation, shard_id, call)(call_client(self.address))

    def _measured(
        self, operation: str, shard_id: str | None, attempt: Callable[[Any], _T]
    ) -> Callable[[Any], _T]:
        """Return ``attempt``, `understood`; if there are metrics, measured and traced each time."""
        metrics = self.metrics
        attempt = functools.partial(understood, attempt)
        if metrics is OFF:
            return attempt
        stream, shard = self.address.name, shard_id or ""

        def traced(client: Any) -> _T:
            with self._tracing.call(operation, stream, shard_id):
                return attempt(client)

        def observe(result: str, seconds: float) -> None:
            metrics.observe(CALL_DURATION, (stream, shard, operation, result), seconds)
            if result == "expired":
                metrics.add(ITERATORS_EXPIRED, (stream, shard))

        return measured(
            traced, self._retry.clock, observe, lambda error: result_of(error, operation)
        )

    def count_retry(self, operation: str, error: ClientError | BotoCoreError) -> None:
        """Measure that a call is made again after an error."""
        if self.metrics is not OFF:
            result = result_of(error, operation)
            reason = "doubted" if result == FAILED else result
            self.metrics.add(CALL_RETRIES, (self.address.name, operation, reason))


def _within(budget: AbstractContextManager[object], call: Callable[[], _T]) -> _T:
    with budget:
        return call()


MOST_CLIENTS = 4096
"""The most clients to keep. An application may read each of its streams by a role of its own; a
client that is not kept assumes its role anew, by each call."""

MOST_CONNECTIONS = 256
"""The most idle connections to keep: each shard has a call or a subscription of its own."""

BOUNDS: Mapping[str, Bound] = {
    # 10 MiB in base64, and for each of 10,000 records a frame and a key, each character escaped.
    # An iterator is valid for 300 seconds.
    "GetRecords": Bound(240.0, 32 * MIB),
    # 10,000 shards at most, of some 500 bytes each.
    "ListShards": Bound(120.0, 16 * MIB),
    # The request has 10 MiB at most, its answer 500 results.
    "PutRecords": Bound(120.0, 4 * MIB),
}
"""Generous: what the service's limits permit (API reference), over a line of half a Mbit/s."""

_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603 - a lock that is held during a fork is never released
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def call_client(address: StreamAddress) -> Any:
    """Return the client for all calls, SubscribeToShard included.

    There is one client, with one pool of connections, per process, region, endpoint and role. The
    threads of many shards ask for it at once: one of them opens it, and the others wait.
    """
    key = address.region, address.endpoint, address.credentials
    client = _clients.get(key)
    if client is None:
        with _opening:
            client = _clients.get(key)
            if client is None:
                client = _open(*key)
                while len(_clients) >= MOST_CLIENTS:
                    del _clients[next(iter(_clients))]
                _clients[key] = client
    return client


_clients: dict[tuple[str | None, str | None, CredentialSource], Any] = {}
"""The clients of this process, the oldest first. Threads read it without a lock, so that none waits
for its client while that of another stream's role is opened."""


def _open(region: str | None, endpoint: str | None, credentials: CredentialSource) -> Any:
    return DirectClient(
        functools.partial(open_session, credentials, region, endpoint),
        functools.partial(_botocores, endpoint),
        _DECODERS,
        bounds=BOUNDS,
        streamed={"SubscribeToShard"},
        most_idle=MOST_CONNECTIONS,
        read_timeout=READ_TIMEOUT,
        usual=usual_settings("kinesis", region, endpoint, credentials),
    )


def _botocores(endpoint: str | None, session: Any) -> Any:
    client = client_of(
        session, "kinesis", endpoint, max_pool_connections=MOST_CONNECTIONS, bounds=BOUNDS
    )
    client.meta.events.register("before-parse.kinesis.GetRecords", _decode_get_records)
    client.meta.events.register("before-parse.kinesis.SubscribeToShard", _take_event_stream)
    return client


def _decode_answer_page(answer: HttpAnswer) -> dict[str, Any]:
    page = decode_page(answer.body)
    return {"Page": page, "Size": data_size(len(answer.body), page)}


def _decode_summary(answer: HttpAnswer) -> dict[str, Any]:
    found = decode_answer(answer)
    summary: dict[str, Any] = found.get("StreamDescriptionSummary", {})
    created = summary.get("StreamCreationTimestamp")
    if created is not None:
        summary["StreamCreationTimestamp"] = datetime.fromtimestamp(created, timezone.utc)
    return found


_DECODERS: Mapping[str, Decoder] = {
    "DescribeStreamConsumer": decode_answer,
    "DescribeStreamSummary": _decode_summary,
    "GetRecords": _decode_answer_page,
    "GetShardIterator": decode_answer,
    "ListShards": decode_answer,
    "PutRecords": decode_answer,
    "SubscribeToShard": lambda answer: {"Body": answer.stream},
}


def _decode_get_records(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Decode a page, and leave an empty document to botocore's parser."""
    if response_dict["status_code"] < 300:
        body = response_dict["body"]
        page = decode_page(body)
        customized_response_dict["Size"] = data_size(len(body), page)
        customized_response_dict["Page"] = page
        response_dict["body"] = b"{}"


def _take_event_stream(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Take the unread body, and leave the first message that botocore expects to its parser."""
    if response_dict["status_code"] < 300:
        from sparkinesis.stream.calls.direct.by_botocore import pumped  # noqa: PLC0415 - with urllib3

        customized_response_dict["Body"] = pumped(response_dict["body"])
        response_dict["body"] = _InitialResponse()


class _InitialResponse:
    """An event stream of the one message that botocore reads before it returns a stream."""

    _MESSAGE = (
        b"\0\0\0G\0\0\0005\xd9B\x9f\x13"
        b"\r:message-type\7\0\5event\13:event-type\7\0\20initial-response"
        b"{}\x8d\xe0\xc8\xa3"
    )

    def stream(self) -> Iterator[bytes]:
        yield self._MESSAGE

    def close(self) -> None:
        """Does nothing: no resource is open."""
