"""SubscribeToShard over HTTP, with boto3 and with raw sockets that misbehave."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import EventStreamError

from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.local.model.registered_consumer import ServedSubscription

SHARD_0 = "shardId-000000000000"
MIB = 1 << 20


def register(kinesis: Any, shards: int = 1, name: str = "app") -> str:
    """Make the stream "s" and register a consumer; return its ARN."""
    kinesis.create_stream(StreamName="s", ShardCount=shards)
    summary = kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    consumer = kinesis.register_stream_consumer(StreamARN=summary["StreamARN"], ConsumerName=name)[
        "Consumer"
    ]
    arn: str = consumer["ConsumerARN"]
    return arn


def subscribe(kinesis: Any, consumer: str, kind: str = "TRIM_HORIZON", **start: Any) -> Any:
    shard = start.pop("shard", SHARD_0)
    return kinesis.subscribe_to_shard(
        ConsumerARN=consumer, ShardId=shard, StartingPosition={"Type": kind, **start}
    )


def events(kinesis: Any, consumer: str, kind: str = "TRIM_HORIZON", **start: Any) -> Iterator[Any]:
    with contextlib.closing(subscribe(kinesis, consumer, kind, **start)["EventStream"]) as stream:
        for event in stream:
            yield event["SubscribeToShardEvent"]


def data(event: Any) -> list[bytes]:
    return [record["Data"] for record in event["Records"]]


class Raw:
    """Return a raw socket with a started subscription; the test decides when to read."""

    def __init__(self, server: LocalServer, consumer: str, receive_buffer: int = 0) -> None:
        port = int(server.endpoint_url.rpartition(":")[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        sock = self.connection.sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(20)
        sock.connect(("127.0.0.1", port))
        start = {"Type": "TRIM_HORIZON"}
        body = {"ConsumerARN": consumer, "ShardId": SHARD_0, "StartingPosition": start}
        headers = {
            "X-Amz-Target": "Kinesis_20131202.SubscribeToShard",
            "Content-Type": "application/x-amz-json-1.1",
            "Authorization": "AWS4-HMAC-SHA256 Credential=a/20261121/us-east-1/x/y",
        }
        self.connection.request("POST", "/", json.dumps(body), headers)
        self.answer = self.connection.getresponse()

    def __enter__(self) -> http.client.HTTPResponse:
        return self.answer

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self.connection.close()


def read_until_reset(answer: http.client.HTTPResponse) -> int:
    """Return the number of bytes received until the connection was reset."""
    count = 0
    try:
        while chunk := answer.read1():
            count += len(chunk)
    except ConnectionResetError:
        return count
    raise AssertionError(f"the body ended as it should, after {count} bytes")


def fill(server: LocalServer, mebibytes: int) -> None:
    entry = {"Data": b"x" * (MIB - 1), "PartitionKey": "k"}
    for _ in range(mebibytes // 8):
        server.kinesis.call("PutRecords", StreamName="s", Records=[entry] * 8)


@pytest.fixture
def released(server: LocalServer) -> threading.Event:
    """Return an event that is set when the server releases a subscription."""
    seen, release = threading.Event(), server.kinesis.release

    def watched(subscription: ServedSubscription) -> None:
        release(subscription)
        seen.set()

    server.kinesis.release = watched  # type: ignore[method-assign]
    return seen


def test_records_are_pushed_as_they_are_put(kinesis: Any, clock: ManualClock) -> None:
    consumer = register(kinesis)
    kinesis.put_record(StreamName="s", Data=b"\x00\xff", PartitionKey="ké")
    pushed = events(kinesis, consumer)
    first = next(pushed)
    (record,) = first["Records"]
    assert (record["Data"], record["PartitionKey"]) == (b"\x00\xff", "ké")
    assert round(record["ApproximateArrivalTimestamp"].timestamp() * 1000) == clock()
    for text in (b"a", b"b"):
        put = kinesis.put_record(StreamName="s", Data=text, PartitionKey="k")
        event = next(pushed)
        assert data(event) == [text]
        assert event["Records"][0]["SequenceNumber"] == put["SequenceNumber"]
    follower = events(
        kinesis,
        consumer,
        "AFTER_SEQUENCE_NUMBER",
        SequenceNumber=first["ContinuationSequenceNumber"],
    )
    assert data(next(follower)) == [b"a", b"b"]


def test_a_delayed_reshard_reaches_it_by_the_system_clock() -> None:
    with LocalServer(limits=False, reshard_delay_ms=300) as server:
        kinesis = server.client("kinesis")
        pushed = events(kinesis, register(kinesis))
        next(pushed)
        begin = time.monotonic()
        kinesis.split_shard(StreamName="s", ShardToSplit=SHARD_0, NewStartingHashKey=str(2**127))
        (last,) = pushed
        assert len(last["ChildShards"]) == 2
        assert 0.2 < time.monotonic() - begin < 4, "before the next event was due anyhow"


def test_a_fault_ends_it_with_an_exception(server: LocalServer, kinesis: Any) -> None:
    consumer = register(kinesis)
    server.kinesis.faults = lambda call: (
        Fault(stream_code="InternalFailureException", stream_after=1, message="so it goes")
        if call.operation == "SubscribeToShard"
        else None
    )
    pushed = events(kinesis, consumer)
    assert next(pushed)["Records"] == []
    with pytest.raises(EventStreamError, match=r"InternalFailureException.*so it goes"):
        next(pushed)


@pytest.mark.parametrize("count", [0, 12, 131, 5_000])
def test_a_fault_cuts_the_connection_after_so_many_bytes(
    server: LocalServer, kinesis: Any, count: int, released: threading.Event
) -> None:
    consumer = register(kinesis)
    fill(server, 8)
    server.kinesis.faults = lambda _: Fault(cut_after=count)
    with Raw(server, consumer) as answer:
        assert read_until_reset(answer) == count
    assert released.wait(20)


def test_a_client_that_does_not_read_is_waited_for(server: LocalServer, kinesis: Any) -> None:
    consumer = register(kinesis)
    fill(server, 64)
    with Raw(server, consumer, receive_buffer=65536) as answer:
        for _ in range(300):  # many turns of the server's loop, more than 64 events take
            kinesis.list_streams()
        sent = server.kinesis.calls.count("SubscribeToShardEvent")
        assert sent < 16, "what the buffers of the connection hold, and one more"
        size = 0
        while server.kinesis.calls.count("SubscribeToShardEvent") < 64:
            size += len(answer.read1(MIB))
        assert size > 64 * MIB


@pytest.mark.parametrize("mebibytes", [0, 32])
def test_a_client_that_goes_away_is_let_go_of(
    server: LocalServer, kinesis: Any, released: threading.Event, mebibytes: int
) -> None:
    """Whether it waits for events, or leaves them unread."""
    consumer = register(kinesis)
    fill(server, mebibytes)
    with Raw(server, consumer, receive_buffer=65536) as answer:
        assert answer.read1()
        assert not released.is_set()
    assert released.wait(20)
    assert server.kinesis.calls.count("SubscribeToShardEvent") < 16


def test_a_stopping_server_ends_it(
    server: LocalServer, kinesis: Any, released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with Raw(server, register(kinesis)) as answer:
        answer.read1()
        begin = time.monotonic()
        server.stop()
        assert released.is_set()
        with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            answer.read()
        assert time.monotonic() - begin < 5
    assert caplog.messages == []
