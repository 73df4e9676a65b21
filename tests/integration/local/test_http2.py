"""HTTP/2 against the server: calls, flow control, and every way in which a stream ends."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from typing import Any

import cbor2
import pytest
from botocore.eventstream import EventStreamBuffer, EventStreamMessage
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from tests.http2 import JSON, Answer, Http2Client, connected
from tests.integration.local.conftest import first_iterator, records

CBOR = "application/x-amz-cbor-1.1"
SHARD = "shardId-000000000000"
FIRST_WINDOW = 65_535


def encoded(**request: Any) -> bytes:
    return json.dumps(request).encode()


def fill(server: LocalServer, megabytes: int, shards: int = 1) -> list[bytes]:
    """Make a stream with this many records of nearly a megabyte; return their data in order."""
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=shards)
    data = [bytes([number]) * 1_000_000 for number in range(megabytes)]
    for item in data:
        server.kinesis.call("PutRecord", StreamName="s", Data=item, PartitionKey="k")
    return data


def contents(body: bytes | bytearray) -> list[bytes]:
    return [base64.b64decode(record["Data"]) for record in json.loads(body)["Records"]]


class Subscription:
    """A call of SubscribeToShard from the oldest record on, and its messages."""

    def __init__(
        self, client: Http2Client, server: LocalServer, kind: str = JSON, shard: str = SHARD
    ) -> None:
        request = {
            "ConsumerARN": consumer(server),
            "ShardId": shard,
            "StartingPosition": {"Type": "TRIM_HORIZON"},
        }
        body = cbor2.dumps(request) if kind == CBOR else encoded(**request)
        self.client = client
        self.number = client.begin("SubscribeToShard", body, kind)
        self._buffer = EventStreamBuffer()
        self._parsed = 0

    @property
    def answer(self) -> Answer:
        return self.client.answers[self.number]

    def event(self) -> EventStreamMessage:
        """Wait for the next message."""
        while True:
            body = self.answer.body
            self._buffer.add_data(bytes(memoryview(body)[self._parsed :]))
            self._parsed = len(body)
            for message in self._buffer:
                return message
            self.client.receive()

    def data(self, count: int) -> list[bytes]:
        """Wait for this many more records. JSON only."""
        got: list[bytes] = []
        while len(got) < count:
            message = self.event()
            if message.headers[":event-type"] == "SubscribeToShardEvent":
                got += contents(message.payload)
        return got


def consumer(server: LocalServer) -> str:
    """Return the ARN of the stream's consumer; register the consumer on the first call."""
    call = server.kinesis.call
    stream = call("DescribeStreamSummary", StreamName="s")["StreamDescriptionSummary"]["StreamARN"]
    found = call("ListStreamConsumers", StreamARN=stream)["Consumers"]
    if not found:
        found = [call("RegisterStreamConsumer", StreamARN=stream, ConsumerName="app")["Consumer"]]
    return str(found[0]["ConsumerARN"])


def test_calls_share_a_connection_and_answer_as_over_http_1(server: LocalServer) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    with Http2Client(server.endpoint_url) as client:
        put = client.call(
            "PutRecord", encoded(StreamName="s", Data="AP8=", PartitionKey="ké"), JSON
        )
        assert put.status == 200
        page = client.call("GetRecords", encoded(ShardIterator=first_iterator(server)))
        (record,) = json.loads(page.body)["Records"]
        assert (record["Data"], record["PartitionKey"]) == ("AP8=", "ké")
        assert record["SequenceNumber"] == json.loads(put.body)["SequenceNumber"]
        assert page.headers["content-type"] == JSON
        assert page.headers["date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
        assert page.headers["content-length"] == str(len(page.body))
        assert page.headers["x-amzn-requestid"]
        error = client.call("DescribeStream", encoded(StreamName="none"))
        assert error.status == 400
        assert error.headers["x-amzn-errortype"] == "ResourceNotFoundException"
    logged = server.kinesis.calls.select("PutRecord")[0]
    assert (logged.region, logged.access_key) == ("us-east-1", "x")


def test_a_preface_in_pieces_and_http_1_beside_it(server: LocalServer, kinesis: Any) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    with connected(server.endpoint_url) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in preface:
            raw.sendall(bytes([byte]))
        head = raw.recv(9, socket.MSG_WAITALL)
        assert head[3] == 4, "the server's settings"
    assert kinesis.list_streams()["StreamNames"] == []


def test_a_page_larger_than_every_window_comes_whole(server: LocalServer) -> None:
    data = fill(server, 10)
    with Http2Client(server.endpoint_url) as client:
        page = client.call("GetRecords", encoded(ShardIterator=first_iterator(server)))
        assert contents(page.body) == data


def test_a_request_larger_than_every_window_arrives_whole(server: LocalServer) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    data = [hashlib.sha256(bytes([i])).digest() * 32_000 for i in range(10)]
    entries = [{"Data": base64.b64encode(item).decode(), "PartitionKey": "k"} for item in data]
    body = encoded(StreamName="s", Records=entries)
    with Http2Client(server.endpoint_url) as client:
        for _ in range(3):  # more than the connection's window, in all
            assert client.call("PutRecords", body).status == 200
        page = client.call("GetRecords", encoded(ShardIterator=first_iterator(server)))
        assert contents(page.body) == data


def test_a_body_over_the_limit_is_refused_and_the_connection_goes_on(server: LocalServer) -> None:
    with Http2Client(server.endpoint_url) as client:
        number = client.begin("PutRecords", b" " * (40 << 20))
        answer = client.answers[number]
        assert answer.status == 413
        assert answer.reset == ErrorCodes.NO_ERROR, "the rest of the request is not wanted"
        for _ in range(2):  # what was not read takes no room from others
            refused = client.answer(client.begin("PutRecords", b" " * (20 << 20)))
            assert refused.headers["x-amzn-errortype"] == "SerializationException"


def test_a_stream_that_has_to_wait_holds_up_no_other(server: LocalServer) -> None:
    data = fill(server, 3)
    with Http2Client(server.endpoint_url, reads=False) as client:
        client.h2.increment_flow_control_window(1 << 30)  # of the connection
        request = encoded(ShardIterator=first_iterator(server))
        pages = [client.begin("GetRecords", request) for _ in range(10)]
        client.ping()
        assert client.call("ListStreams").status == 200
        assert max(len(client.answers[number].body) for number in pages) <= FIRST_WINDOW
        client.give_room()
        for number in pages:
            assert contents(client.answer(number).body) == data


def test_an_answer_begins_although_there_is_no_room_for_its_body(server: LocalServer) -> None:
    fill(server, 1)
    with Http2Client(server.endpoint_url, reads=False) as client:
        page = client.begin("GetRecords", encoded(ShardIterator=first_iterator(server)))
        while len(client.answers[page].body) < FIRST_WINDOW:
            client.receive()
        late = client.answers[client.begin("ListStreams")]
        while not late.status:
            client.receive()
        assert (late.status, bytes(late.body)) == (200, b"")


def test_streams_share_what_room_their_connection_has(server: LocalServer) -> None:
    fill(server, 3)
    with Http2Client(server.endpoint_url, reads=False) as client:
        request = encoded(ShardIterator=first_iterator(server))
        first, second = (client.begin("GetRecords", request) for _ in range(2))
        while client.h2.remote_flow_control_window(first) > 0:
            client.receive()
        client.h2.increment_flow_control_window(1 << 20, first)
        client.h2.increment_flow_control_window(1 << 20, second)
        client.h2.increment_flow_control_window(1 << 20)
        client.flush()
        client.ping()
        while sum(len(client.answers[n].body) for n in (first, second)) < (1 << 20):
            client.receive()
        sizes = [len(client.answers[number].body) for number in (first, second)]
        assert min(sizes) > max(sizes) / 3, "neither has it all"


@pytest.mark.parametrize("kind", [JSON, CBOR])
def test_a_subscription_pushes_events_in_the_codec_of_its_call(
    server: LocalServer, kind: str
) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    with Http2Client(server.endpoint_url) as client:
        subscription = Subscription(client, server, kind)
        subscription.event()  # the start
        subscription.event()  # nothing is there yet
        server.kinesis.call("PutRecord", StreamName="s", Data=b"\x00\xff", PartitionKey="k")
        last = subscription.event()
        assert subscription.answer.headers["content-type"] == "application/vnd.amazon.eventstream"
        assert last.headers[":event-type"] == "SubscribeToShardEvent"
        assert last.headers[":content-type"] == kind
        if kind == CBOR:
            decoders = {1: lambda value, _: ("instant", value)}
            page = cbor2.loads(last.payload, semantic_decoders=decoders)
            (record,) = page["Records"]
            assert record["Data"] == b"\x00\xff"
            assert record["ApproximateArrivalTimestamp"] == ("instant", server.kinesis.clock())
        else:
            page = json.loads(last.payload)
            (record,) = page["Records"]
            assert record["Data"] == "AP8="
        assert int(record["SequenceNumber"]) <= int(page["ContinuationSequenceNumber"])
        assert page["MillisBehindLatest"] == 0


def test_a_client_that_does_not_read_is_not_pushed_to(server: LocalServer) -> None:
    data = fill(server, 25)
    with Http2Client(server.endpoint_url, reads=False) as client:
        subscription = Subscription(client, server)
        while len(subscription.answer.body) < FIRST_WINDOW:
            client.receive()
        for _ in range(20):
            client.ping()
        assert len(subscription.answer.body) == FIRST_WINDOW
        pushed = server.kinesis.calls.select("SubscribeToShardEvent")
        assert sum(event.records for event in pushed) < 10
        client.give_room()
        assert subscription.data(len(data)) == data


def test_a_client_that_gives_room_but_takes_nothing_is_not_pushed_to(server: LocalServer) -> None:
    fill(server, 60)
    with Http2Client(server.endpoint_url) as client, Http2Client(server.endpoint_url) as other:
        client.h2.update_settings(
            {SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30, SettingCodes.MAX_FRAME_SIZE: (1 << 24) - 1}
        )
        client.h2.increment_flow_control_window(1 << 30)
        Subscription(client, server)
        for _ in range(200):
            other.ping()
        pushed = server.kinesis.calls.select("SubscribeToShardEvent")
        assert 0 < sum(event.records for event in pushed) < 40


def test_hundreds_of_subscriptions_share_one_connection(server: LocalServer) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=200)
    shards = [f"shardId-{number:012d}" for number in range(200)]
    with Http2Client(server.endpoint_url) as client:
        subscriptions = [Subscription(client, server, JSON, shard) for shard in shards]
        for index in range(200):
            server.kinesis.call(
                "PutRecord",
                StreamName="s",
                Data=str(index).encode(),
                PartitionKey="k",
                ExplicitHashKey=str(2**128 // 200 * index + 1),
            )
        for index, subscription in enumerate(subscriptions):
            assert subscription.data(1) == [str(index).encode()]


def test_a_subscription_whose_time_is_over_ends_its_stream_alone(
    server: LocalServer, clock: ManualClock
) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    with Http2Client(server.endpoint_url) as client:
        subscription = Subscription(client, server)
        subscription.event()
        clock.advance(300_000)
        answer = client.answer(subscription.number)
        assert (answer.ended, answer.reset) == (True, None)
        assert client.call("ListStreams").status == 200


@pytest.mark.parametrize("leave", ["reset", "close"])
def test_a_client_that_leaves_ends_its_subscription(server: LocalServer, leave: str) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    with Http2Client(server.endpoint_url) as client, Http2Client(server.endpoint_url) as other:
        subscription = Subscription(client, server)
        subscription.event()
        subscription.event()
        if leave == "reset":
            client.h2.reset_stream(subscription.number, ErrorCodes.CANCEL)
            client.flush()
            assert client.call("ListStreams").status == 200, "the connection goes on"
        else:
            client.socket.close()
        other.ping()
        other.ping()
        pushed = len(server.kinesis.calls.select("SubscribeToShardEvent"))
        server.kinesis.call("PutRecord", StreamName="s", Data=b"a", PartitionKey="k")
        other.ping()
        other.ping()
        assert len(server.kinesis.calls.select("SubscribeToShardEvent")) == pushed


def test_a_call_that_is_taken_back_half_way_is_none(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Http2Client(server.endpoint_url) as client:
        number = client.begin("ListStreams", b"{}", length=3)
        client.ping()
        client.h2.reset_stream(number, ErrorCodes.CANCEL)
        client.ping()
        client.ping()
        assert len(server.kinesis.calls) == 0
        assert client.call("ListStreams").status == 200
    assert caplog.messages == []


def test_a_dropped_call_resets_the_connection(server: LocalServer) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    server.kinesis.faults = lambda call: (
        Fault.dropped("after") if call.operation == "PutRecord" else None
    )
    with Http2Client(server.endpoint_url) as client:
        assert client.call("ListStreams").status == 200
        put = client.begin("PutRecord", encoded(StreamName="s", Data="eA==", PartitionKey="k"))
        with pytest.raises(ConnectionResetError):
            client.answer(put)
    server.kinesis.faults = None
    assert records(server) == [b"x"], "it took effect"


def test_a_client_that_says_goodbye_still_gets_its_answers(server: LocalServer) -> None:
    data = fill(server, 3)
    with Http2Client(server.endpoint_url, reads=False) as client:
        number = client.begin("GetRecords", encoded(ShardIterator=first_iterator(server)))
        while len(client.answers[number].body) < FIRST_WINDOW:
            client.receive()
        # As a frame of its own: the client's h2 would take itself to be closed.
        client.socket.sendall(b"\0\0\x08\7\0" + b"\0" * 12)
        client.give_room()
        assert contents(client.answer(number).body) == data


def test_a_call_that_fails_here_resets_its_stream_alone(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    def plan(call: Call) -> Fault | None:
        raise ZeroDivisionError

    server.kinesis.faults = plan
    with Http2Client(server.endpoint_url) as client:
        assert client.call("ListStreams").reset == ErrorCodes.INTERNAL_ERROR
        server.kinesis.faults = None
        assert client.call("ListStreams").status == 200
    assert "ZeroDivisionError" in caplog.text


def test_nonsense_after_the_preface_is_told_and_ends_the_connection(server: LocalServer) -> None:
    with Http2Client(server.endpoint_url) as client:
        client.ping()
        client.socket.sendall(b"\0\0\1\0\0\0\0\0\0x")  # data on the stream that is none
        with pytest.raises(EOFError):
            client.drain()
        assert client.goaway == ErrorCodes.PROTOCOL_ERROR


def test_a_server_that_stops_ends_connections_whatever_they_are_doing(server: LocalServer) -> None:
    fill(server, 3)
    url = server.endpoint_url
    with (
        Http2Client(url) as idle,
        Http2Client(url, reads=False) as stuck,
        Http2Client(url) as subscribed,
        connected(url) as silent,
    ):
        silent.sendall(b"PRI")
        idle.ping()
        request = encoded(ShardIterator=first_iterator(server))
        page = stuck.begin("GetRecords", request)
        while len(stuck.answers[page].body) < FIRST_WINDOW:
            stuck.receive()
        Subscription(subscribed, server).event()
        server.stop()
        for client in (idle, stuck, subscribed):
            with pytest.raises((EOFError, ConnectionResetError)):
                client.drain()
        assert silent.recv(1) == b""
