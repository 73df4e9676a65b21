"""Answers that never end, by a drop or by a flood: each call ends in time, and with little memory.

A connection's timeout is far away here: only the bound of the call can end it. What a server sends
ends after some seconds or 48 MiB, so that a call without a bound fails its test.
"""

from __future__ import annotations

import functools
import itertools
import json
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from sparkinesis.errors import ServiceError
from sparkinesis.lease.assignment.partial_scan import keys_of
from sparkinesis.lease.table import client as lease_table
from sparkinesis.lease.table.calls import RowTable
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls import operations
from sparkinesis.stream.calls.answers.guards import MIB, Bound, pages
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff, RetryLaterError, is_retryable
from sparkinesis.stream.fan_out.registered_consumers import list_consumers
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.answering import answering
from tests.integration.stream.direct.both import clients
from tests.integration.stream.direct.raw_server import Behaviour, RawServer, serving
from tests.pace import seconds

SECONDS = 0.1
MOST = MIB
OK = b"HTTP/1.1 200 OK\r\n"
BAD = b"HTTP/1.1 500 No\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def drip(first: bytes, drop: bytes) -> Behaviour:
    def answer(connection: socket.socket) -> bool:
        connection.sendall(first)
        for _ in range(600):
            connection.sendall(drop)
            time.sleep(0.01)  # the server's pace is the fault
        return False

    return answer


def flood(first: bytes, wave: bytes) -> Behaviour:
    def answer(connection: socket.socket) -> bool:
        connection.sendall(first)
        many = wave * (65_536 // len(wave) + 1)
        for _ in range(48 * MIB // len(many)):
            connection.sendall(many)
        return False

    return answer


HEADS: dict[str, Behaviour] = {
    "an interim answer now and then": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim answers": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a header, byte by byte": drip(OK + b"X: ", b"-"),
    "headers": flood(OK, b"X: -\r\n"),
    "a header": flood(OK + b"X: ", b"-"),
}
BODIES: dict[str, Behaviour] = {
    "a body, byte by byte": drip(OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "a body in chunks, byte by byte": drip(OK + CHUNKED, b"1\r\n \r\n"),
    "a body without a length, byte by byte": drip(OK + b"\r\n", b" "),
    "a body of 4 GB": flood(OK + b"Content-Length: 4000000000\r\n\r\n", b" "),
    "a body of any length": flood(OK + b"Content-Length: 1" + b"0" * 20 + b"\r\n\r\n", b" "),
    "a body in chunks": flood(OK + CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n"),
    "a body in one chunk": flood(OK + CHUNKED + b"f" * 30 + b"\r\n", b" "),
    "a body without a length": flood(OK + b"\r\n", b" "),
    "an error": flood(BAD + CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n"),
    "an error, byte by byte": drip(BAD + b"Content-Length: 100000\r\n\r\n", b" "),
}
PARTS: dict[str, Behaviour] = {
    # botocore's HTTP library bounds the size of these by itself.
    "the size of a chunk, byte by byte": drip(OK + CHUNKED, b"0"),
    "trailers": flood(OK + CHUNKED + b"0\r\n", b"X: -\r\n"),
}
REQUESTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a stream": (
        "kinesis",
        "GetShardIterator",
        "get_shard_iterator",
        {"StreamName": "s", "ShardId": "i", "ShardIteratorType": "LATEST"},
    ),
    "a table": ("dynamodb", "Scan", "scan", {"TableName": "t"}),
    "by botocore": ("kinesis", "ListStreams", "list_streams", {}),
    "a subscription": (
        "kinesis",
        "SubscribeToShard",
        "subscribe_to_shard",
        {
            "ConsumerARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
            "ShardId": "i",
            "StartingPosition": {"Type": "LATEST"},
        },
    ),
}
FAULTS = {**HEADS, **BODIES, **PARTS}
WAYS = [
    *[("a stream", fault) for fault in FAULTS],
    *[("a table", fault) for fault in ("a body, byte by byte", "a body of 4 GB")],
    *[("by botocore", fault) for fault in ("a header, byte by byte", *BODIES)],
    *[("a subscription", fault) for fault in (*HEADS, "an error", "an error, byte by byte")],
    *[("behind a proxy", fault) for fault in BODIES],
]


@contextmanager
def calling(
    server: RawServer, way: str, monkeypatch: pytest.MonkeyPatch, limit: float
) -> Iterator[Callable[[], Any]]:
    """A call whose answer the server gives."""
    endpoint = server.endpoint
    if way == "behind a proxy":
        monkeypatch.setenv("HTTP_PROXY", endpoint)
        endpoint, way = "http://kinesis.test", "a stream"
    service, operation, method, request = REQUESTS[way]
    _, direct = clients(endpoint, service, operation, read_timeout=30.0, bound=Bound(limit, MOST))
    if way == "by botocore":
        direct.__dict__.pop(method)
    direct._streamed = frozenset({"SubscribeToShard"})
    with closing(direct):
        yield functools.partial(getattr(direct, method), **request)


@pytest.mark.parametrize(("way", "fault"), WAYS)
def test_an_answer_that_never_ends_is_a_failure_in_time_and_in_little_memory(
    monkeypatch: pytest.MonkeyPatch, way: str, fault: str
) -> None:
    # A flood is ended by its size, long before the time.
    limit = SECONDS if fault.endswith(("byte by byte", "now and then")) else 30.0
    with serving() as server, calling(server, way, monkeypatch, limit) as call:
        server.behaviours.extend([guarded(FAULTS[fault])] * 2)
        tracemalloc.start()
        began = time.monotonic()
        with pytest.raises(BotoCoreError) as failed:
            call()
        took, memory = time.monotonic() - began, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert is_retryable(failed.value)
    assert took < seconds(SECONDS + 2.0), failed.value
    assert memory < 6 * MIB, failed.value


def guarded(behaviour: Behaviour) -> Behaviour:
    def answer(connection: socket.socket) -> bool:
        with suppress(OSError):  # the client has left
            behaviour(connection)
        return False

    return answer


def test_a_bound_permits_the_longest_answers_of_the_service() -> None:
    """Of GetRecords 10 MiB in base64, with 10,000 keys of 256 characters, each escaped."""
    frame = len('{"SequenceNumber":"","ApproximateArrivalTimestamp":1.790000000123E9,"Data":"",')
    frame += len('"PartitionKey":"","EncryptionType":"KMS"},') + 56
    page = 10 * MIB * 4 // 3 + 10_000 * (frame + 6 * 256)
    assert page < operations.BOUNDS["GetRecords"].size < 3 * 10 * MIB * 4 // 3
    assert operations.BOUNDS["GetRecords"].seconds < 300, "for which an iterator is valid"
    assert lease_table.BOUNDS["GetItem"].seconds == lease_table.BOUNDS["UpdateItem"].seconds == 5
    assert lease_table.BOUNDS["GetItem"].size > 6 * 400_000, "a row, each character escaped"


# Listings, whose pages are more and more.

SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
CONSUMER = {
    "ConsumerName": "c",
    "ConsumerARN": "arn:aws:kinesis:us-east-1:1:stream/s/consumer/c:1",
    "ConsumerStatus": "ACTIVE",
    "ConsumerCreationTimestamp": 1.7e9,
}
ROWS = {"Items": [], "LastEvaluatedKey": {"leaseKey": {"S": "k"}}}
LISTINGS: dict[str, tuple[dict[str, Any], Callable[[StreamClient, LeaseTable], object]]] = {
    "ListShards": (
        {"Shards": [SHARD], "NextToken": "t"},
        lambda stream, _: stream.list_shards(),
    ),
    "ListStreamConsumers": (
        {"Consumers": [CONSUMER], "NextToken": "t"},
        lambda stream, _: list_consumers(stream, "arn:aws:kinesis:us-east-1:1:stream/s"),
    ),
    "Scan": (ROWS, lambda _, table: table.leases()),
    "Scan of a table beside": (
        ROWS,
        lambda _, table: RowTable(table.name, table.region, table.endpoint).rows(),
    ),
    "Query": (ROWS, lambda _, table: keys_of(table, "w")),
}


@pytest.mark.parametrize("listing", LISTINGS)
@pytest.mark.parametrize("tokens", ["a", "ab"])
def test_a_listing_with_the_same_tokens_for_ever_is_an_error(listing: str, tokens: str) -> None:
    page, call = LISTINGS[listing]
    turns = itertools.cycle(tokens)

    def answer(headers: Mapping[str, str], _: bytes) -> tuple[int, bytes]:
        asked.append(headers["x-amz-target"].rpartition(".")[2])
        token = f'"{next(turns)}"'
        return 200, json.dumps(page).replace('"t"', token).replace('"k"', token).encode()

    asked: list[str] = []
    with answering(answer, "application/x-amz-json-1.0") as endpoint:
        client = StreamClient(StreamAddress("s", None, "us-east-1", endpoint))
        with pytest.raises(ServiceError, match="does not end: a token came a second time") as error:
            call(client, LeaseTable("t", "us-east-1", endpoint))
    assert listing.split(maxsplit=1)[0] in str(error.value)
    assert len(asked) <= 3


def test_a_listing_with_new_tokens_for_ever_is_an_error() -> None:
    tokens = itertools.count(1)
    listing = pages("Scan of t", "token", lambda _: {"token": next(tokens)}, most=5)
    with pytest.raises(ServiceError, match="5 pages came"):
        list(listing)
    assert next(tokens) == 6


# Iterators.


@pytest.mark.parametrize("holds_the_thread", [True, False])
def test_iterators_that_have_always_expired_are_an_error_in_time(
    caplog: pytest.LogCaptureFixture, *, holds_the_thread: bool
) -> None:
    def answer(headers: Mapping[str, str], _: bytes) -> tuple[int, bytes]:
        if headers["x-amz-target"].endswith("GetShardIterator"):
            return 200, b'{"ShardIterator": "i"}'
        return 400, b'{"__type": "ExpiredIteratorException", "message": "five minutes"}'

    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def longest(_: float, most: float) -> float:
        return most

    retry = Backoff(give_up_after=60.0, clock=lambda: now[0], sleep=sleep, uniform=longest)
    with answering(answer, "application/x-amz-json-1.1") as endpoint:
        client = StreamClient(StreamAddress("s", None, "us-east-1", endpoint), retry)
        budget = ShardBudget(Pace(0, 0))
        cursor = ShardCursor(
            client,
            budget,
            "shardId-000000000000",
            TRIM_HORIZON,
            retry=None if holds_the_thread else client.attempts(),
        )

        def fetch() -> None:
            while True:
                try:
                    cursor.fetch()
                except RetryLaterError as later:
                    assert not holds_the_thread
                    sleep(later.seconds)

        with pytest.raises(ServiceError, match="GetRecords says of each new iterator of shard"):
            fetch()
    assert 30 < now[0] <= 60
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
