"""Queues over HTTP: unmodified boto3, long polls, and clients that leave while they wait."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import cbor2
import pytest
from botocore.exceptions import ConnectionClosedError
from h2.errors import ErrorCodes

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.local.clock import IdleUntil
from sparkinesis.local.kinesis import CallResult, PendingCall
from tests import pace
from tests.http2 import JSON, Http2Client
from tests.integration.local.conftest import once

CBOR = "application/x-amz-cbor-1.1"
PATIENCE = pace.seconds(20)


@pytest.fixture
def arn(kinesis: Any) -> str:
    return create(kinesis)


def create(kinesis: Any, name: str = "orders", **request: Any) -> str:
    """Make the stream "s" if it is not there, and a queue on it; return the queue's ARN."""
    if not kinesis.list_streams()["StreamNames"]:
        mode = {"StreamMode": "ON_DEMAND"}
        kinesis.create_stream(StreamName="s", StreamModeDetails=mode)
    summary = kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    streams = [{"StreamARN": summary["StreamARN"]}]
    made = kinesis.create_queue(QueueName=name, StreamConfigurationList=streams, **request)
    return str(made["QueueDescription"]["QueueARN"])


def put(kinesis: Any, data: bytes = b"a", key: str = "k") -> None:
    kinesis.put_record(StreamName="s", Data=data, PartitionKey=key)


def receive(kinesis: Any, arn: str, *, dead: bool = False, **request: Any) -> list[Any]:
    call = kinesis.receive_queue_records
    if dead:
        call = kinesis.receive_dead_letter_queue_records
    return list(call(QueueARN=arn, **request)["QueueRecords"])


def handles(records: list[Any], **more: Any) -> list[dict[str, Any]]:
    return [{"ReceiptHandle": record["ReceiptHandle"], **more} for record in records]


class Polls:
    """The receives that wait on a server: when they begin to wait, and when they have ended."""

    def __init__(self, server: LocalServer, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._begun: queue.Queue[IdleUntil] = queue.Queue()
        self._ended: queue.Queue[PendingCall] = queue.Queue()
        resume, leave = server.kinesis.resume, server.kinesis.leave

        def resumed(call: PendingCall) -> CallResult | IdleUntil:
            step = resume(call)
            if isinstance(step, IdleUntil):
                self._begun.put(step)
            return step

        def left(call: PendingCall) -> None:
            leave(call)
            self._ended.put(call)

        server.kinesis.resume = resumed  # type: ignore[method-assign]
        server.kinesis.leave = left  # type: ignore[method-assign]

    def begin(self, kinesis: Any, arn: str, **request: Any) -> Future[list[Any]]:
        """Receive in another thread; return once the call waits on the server."""
        poll = self._pool.submit(receive, kinesis, arn, **request)
        self.waiting()
        return poll

    def waiting(self, count: int = 1) -> int:
        """Wait until so many receives wait; return until when the last of them does."""
        return [self._begun.get(timeout=PATIENCE).until_ms for _ in range(count)][-1]

    def ended(self) -> PendingCall:
        """Wait until a receive that waited has ended."""
        return self._ended.get(timeout=PATIENCE)


@pytest.fixture
def polls(server: LocalServer) -> Iterator[Polls]:
    with ThreadPoolExecutor(4) as pool:
        yield Polls(server, pool)


def test_a_record_is_received_and_acknowledged(kinesis: Any, arn: str, clock: ManualClock) -> None:
    put(kinesis, b"\x00\xff", "ké")
    clock.advance(1000)
    (record,) = receive(kinesis, arn)
    assert (record["Data"], record["PartitionKey"]) == (b"\x00\xff", "ké")
    assert round(record["FirstReceiveTimestamp"].timestamp() * 1000) == clock()
    assert round(record["ApproximateArrivalTimestamp"].timestamp() * 1000) == clock() - 1000
    assert record["ReceiveCount"] == 1
    nonsense = {"ReceiptHandle": "nonsense"}
    answer = kinesis.acknowledge_queue_records(QueueARN=arn, Entries=[*handles([record]), nonsense])
    assert answer["Successful"] == handles([record])
    (failed,) = answer["Failed"]
    assert failed.pop("ErrorMessage")
    assert failed == {**nonsense, "ErrorCode": "InvalidArgumentException"}


# Long polls


def test_a_poll_ends_early_by_a_record(kinesis: Any, arn: str, polls: Polls) -> None:
    poll = polls.begin(kinesis, arn, WaitTimeSeconds=20)
    put(kinesis, b"came later")
    (record,) = poll.result(PATIENCE)
    assert record["Data"] == b"came later"


def test_a_poll_ends_empty_when_its_time_is_over(
    kinesis: Any, arn: str, polls: Polls, clock: ManualClock
) -> None:
    poll = polls.begin(kinesis, arn)
    clock.advance(8999)
    kinesis.list_queues()  # a turn of the server's loop
    assert not poll.done()
    clock.advance(1)
    assert poll.result(PATIENCE) == []


def test_a_poll_ends_by_the_machines_clock() -> None:
    with LocalServer(limits=False) as server:
        kinesis = once(server, "kinesis")
        arn = create(kinesis)
        put(kinesis)
        (record,) = receive(kinesis, arn, VisibilityTimeoutSeconds=1)
        began = time.monotonic()
        (again,) = receive(kinesis, arn, WaitTimeSeconds=20)
        assert again["RecordId"] == record["RecordId"]
        assert receive(kinesis, arn, WaitTimeSeconds=1) == []
        assert 1.9 < time.monotonic() - began < pace.seconds(10)


def test_a_poll_ends_when_its_queue_is_deleted(kinesis: Any, arn: str, polls: Polls) -> None:
    begun = [polls.begin(kinesis, arn, dead=dead) for dead in (False, True)]
    kinesis.delete_queue(QueueARN=arn)
    for poll in begun:
        with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
            poll.result(PATIENCE)


def test_polls_hold_up_no_other_call(
    server: LocalServer, kinesis: Any, arn: str, polls: Polls
) -> None:
    with Http2Client(server.endpoint_url) as client:
        begun = [begin(client, arn) for _ in range(100)]
        polls.waiting(100)
        assert threading.active_count() < 50, "a poll has no thread"
        for number in range(100):
            put(kinesis, b"%d" % number)
        data = {records(client, poll)[0]["Data"] for poll in begun}
    assert len(data) == 100, "each has one record"


def begin(client: Http2Client, arn: str) -> int:
    """Begin a receive of one record, as a stream of this connection."""
    body = {"QueueARN": arn, "Limit": 1, "WaitTimeSeconds": 20}
    return client.begin("ReceiveQueueRecords", json.dumps(body).encode())


def records(client: Http2Client, poll: int) -> list[Any]:
    return list(json.loads(client.answer(poll).body)["QueueRecords"])


@pytest.mark.parametrize("kind", [JSON, CBOR])
def test_a_poll_over_http_2_in_each_encoding(
    server: LocalServer, kinesis: Any, polls: Polls, clock: ManualClock, kind: str
) -> None:
    arn = create(kinesis)
    encode = cbor2.dumps if kind == CBOR else lambda body: json.dumps(body).encode()
    with Http2Client(server.endpoint_url) as client:
        poll = client.begin("ReceiveQueueRecords", encode({"QueueARN": arn}), kind)
        polls.waiting()
        put(kinesis, b"\x00\xff")
        answer = client.answer(poll)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    if kind == JSON:
        (record,) = json.loads(answer.body)["QueueRecords"]
        assert (record["Data"], record["FirstReceiveTimestamp"]) == ("AP8=", clock() / 1000)
    else:
        decoders = {1: lambda value, _: ("instant", value)}
        page = cbor2.loads(bytes(answer.body), semantic_decoders=decoders)
        (record,) = page["QueueRecords"]
        assert (record["Data"], record["FirstReceiveTimestamp"]) == (
            b"\x00\xff",
            ("instant", clock()),
        )


@pytest.mark.parametrize("leave", ["reset", "close", "http/1.1"])
def test_a_client_that_left_receives_nothing(
    server: LocalServer, kinesis: Any, polls: Polls, leave: str
) -> None:
    arn = create(kinesis)
    if leave == "http/1.1":
        impatient = server.client("kinesis", config=_impatient())
        with pytest.raises(Exception, match="Read timeout"):
            receive(impatient, arn, WaitTimeSeconds=20)
    else:
        with Http2Client(server.endpoint_url) as client:
            poll = begin(client, arn)
            polls.waiting()
            if leave == "reset":
                client.h2.reset_stream(poll, ErrorCodes.CANCEL)
                client.flush()
                assert client.call("ListStreams").status == 200, "the connection goes on"
            else:
                client.socket.close()
    polls.ended()
    put(kinesis)
    (record,) = receive(kinesis, arn)
    assert record["ReceiveCount"] == 1
    assert [call.error for call in server.kinesis.calls.select("ReceiveQueueRecords")] == [
        "Dropped",
        None,
    ]


def _impatient() -> Any:
    from botocore.config import Config  # noqa: PLC0415

    return Config(read_timeout=0.3, retries={"total_max_attempts": 1})


def test_a_server_that_stops_ends_polls(
    server: LocalServer, kinesis: Any, arn: str, polls: Polls
) -> None:
    poll = polls.begin(kinesis, arn, WaitTimeSeconds=20)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < pace.seconds(5)
    assert isinstance(poll.exception(PATIENCE), ConnectionClosedError)
    polls.ended()
