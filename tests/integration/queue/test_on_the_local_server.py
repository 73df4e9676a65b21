"""A queue's whole life by its client, on the local server: made, received from, and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from sparkinesis.errors import ConsumerLimitError, OptionError, QueueNotFoundError
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.queue.client import DEAD_LETTERS, RESTORED, QueueClient, Received
from sparkinesis.queue.finding import NewQueue, Queues
from sparkinesis.stream.calls.retry import Backoff

SECONDS = 45
"""So long a queue is CREATING, by the server's clock, which a wait moves."""


class Waiting:
    """A clock of a program and a server, which only waits move."""

    def __init__(self) -> None:
        self.server_clock = ManualClock()
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.server_clock.advance(round(seconds * 1000))

    def backoff(self) -> Backoff:
        return Backoff(clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def server(waiting: Waiting) -> Iterator[LocalServer]:
    with LocalServer(clock=waiting.server_clock) as running:
        for name in ("s", "t"):
            running.client("kinesis").create_stream(
                StreamName=name, StreamModeDetails={"StreamMode": "ON_DEMAND"}
            )
        yield running


@pytest.fixture
def queues(server: LocalServer, waiting: Waiting) -> Queues:
    return Queues("us-east-1", server.endpoint_url, retry=waiting.backoff())


@pytest.fixture
def client(queues: Queues) -> QueueClient:
    address, _ = queues.find("orders", NewQueue("s", max_receive_count=2))
    return QueueClient(address)


def put(server: LocalServer, *data: bytes) -> None:
    records = [{"Data": each, "PartitionKey": "k"} for each in data]
    server.client("kinesis").put_records(StreamName="s", Records=records)


def by_data(records: list[Received]) -> dict[bytes, Received]:
    return {one.data: one for one in records}


def test_a_record_is_received_until_it_is_acknowledged(
    server: LocalServer, client: QueueClient, waiting: Waiting
) -> None:
    put(server, b"a", b"b", b"c")
    first = by_data(client.receive(10, 1))
    assert {one.receive_count for one in first.values()} == {1}
    assert {one.partition_key for one in first.values()} == {"k"}
    (done,) = client.acknowledge([first[b"a"].receipt_handle])
    (held,) = client.set_visibility([(first[b"b"].receipt_handle, 60)])
    (released,) = client.set_visibility([(first[b"c"].receipt_handle, 0)])
    assert [done.code, held.code, released.code] == [None] * 3
    (again,) = client.receive(10, 1)
    assert (again.data, again.receive_count) == (b"c", 2)
    assert again.record_id == first[b"c"].record_id
    assert again.receipt_handle != first[b"c"].receipt_handle
    client.acknowledge([again.receipt_handle])
    put(server, b"d")
    waiting.sleep(59)
    (other,) = client.receive(10, 1)
    waiting.sleep(1)
    (late,) = client.receive(10, 1)
    assert (other.data, late.data) == (b"d", b"b"), "which was held for 60 seconds"


def test_a_handle_that_is_void_has_failed_and_the_others_have_not(
    server: LocalServer, client: QueueClient
) -> None:
    put(server, b"a", b"b")
    records = client.receive(10, 1)
    handles = [one.receipt_handle for one in records]
    client.acknowledge(handles[:1])
    gone, fine, none = client.acknowledge([*handles, "none"])
    assert (gone.code, fine.code, none.code) == (
        "ResourceNotFoundException",
        None,
        "InvalidArgumentException",
    )
    assert [gone.receipt_handle, fine.receipt_handle] == handles
    assert gone.message


def test_a_dead_letter_is_received_apart_and_restored(
    server: LocalServer, client: QueueClient
) -> None:
    put(server, b"a", b"b")
    for _ in range(2):
        for record in client.receive(10, 1):
            client.set_visibility([(record.receipt_handle, 0)])
    dead, restoring = (
        QueueClient(client.address, calls=calls) for calls in (DEAD_LETTERS, RESTORED)
    )
    letters = by_data(dead.receive(10, 1, 9))
    assert letters.keys() == {b"a", b"b"}
    assert [one.code for one in restoring.acknowledge([letters[b"a"].receipt_handle])] == [None]
    (one,) = dead.acknowledge([letters[b"b"].receipt_handle])
    assert one.code is None
    (back,) = client.receive(10, 1)
    assert (back.data, back.receive_count, back.record_id) == (b"a", 1, letters[b"a"].record_id)


def test_the_attributes_are_those_that_were_given(queues: Queues) -> None:
    new = NewQueue("s", "trim_horizon", 0, None, {"team": "a"})
    address, found = queues.find("orders", new)
    assert (found.name, found.status, found.visibility_timeout) == ("orders", "ACTIVE", 0)
    assert found.max_receive_count is None
    assert found.stream_arn.endswith(":stream/s")
    client = QueueClient(address)
    assert client.update(max_receive_count=9).max_receive_count == 9
    changed = client.update(visibility_timeout=60)
    assert (changed.visibility_timeout, changed.max_receive_count) == (60, 9)
    assert client.describe() == changed


def test_the_creation_is_waited_for(
    server: LocalServer, queues: Queues, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    server.kinesis.stream_delay_ms = SECONDS * 1000
    _, found = queues.find("orders", NewQueue("s"))
    assert found.status == "ACTIVE"
    assert SECONDS <= waiting.now <= SECONDS + 5
    assert "is ACTIVE after 45 s" in caplog.records[-1].getMessage()


def test_processes_that_make_a_queue_at_once_have_one_queue(queues: Queues) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: queues.find("orders", NewQueue("s"))[0], range(8)))
    assert len({address.arn for address in found}) == 1
    assert len(queues.all()) == 1


def test_a_queue_that_is_made_anew_has_another_arn(queues: Queues, client: QueueClient) -> None:
    client.delete()
    with pytest.raises(QueueNotFoundError, match=r"'orders' .*made anew has another ARN"):
        client.describe()
    with pytest.raises(ClientError) as raised:
        client.receive(1, 1)
    explained = client.explained(raised.value, "ReceiveQueueRecords")
    assert isinstance(explained, QueueNotFoundError)
    again, _ = queues.find("orders", NewQueue("s"))
    assert again.arn != client.address.arn
    assert queues.locate("orders") == again


def test_a_name_belongs_to_one_stream(queues: Queues, client: QueueClient) -> None:
    assert client.describe().stream_arn.endswith(":stream/s")
    with pytest.raises(OptionError, match=r"is a queue of \S+:stream/s, not of t\."):
        queues.find("orders", NewQueue("t"))


def test_a_stream_has_room_for_twenty_consumers_and_queues(
    server: LocalServer, queues: Queues, waiting: Waiting
) -> None:
    kinesis = server.client("kinesis")
    summary = kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    for n in range(3):
        kinesis.register_stream_consumer(StreamARN=summary["StreamARN"], ConsumerName=f"c{n}")
    for n in range(17):
        queues.find(f"q{n}", NewQueue("s"))
    with pytest.raises(ConsumerLimitError, match=r"stream 's' .* has 20 queues and"):
        queues.find("q17", NewQueue("s"))
    assert waiting.now < 10
    assert queues.find("q0", NewQueue("s"))[0].name == "q0", "which is there already"


def test_a_receive_is_one_call_though_its_answer_is_lost(
    server: LocalServer, client: QueueClient, waiting: Waiting
) -> None:
    faults = [Fault.dropped("after")]
    put(server, b"a")
    server.kinesis.faults = lambda _: faults.pop() if faults else None
    with pytest.raises(ConnectionClosedError):
        client.receive(10, 1)
    assert len(server.kinesis.calls.select("ReceiveQueueRecords")) == 1
    waiting.sleep(30)
    (again,) = client.receive(10, 1)
    assert again.receive_count == 2, "the first receive has counted"


def test_an_acknowledgement_tells_of_each_record(server: LocalServer, client: QueueClient) -> None:
    put(server, b"a", b"b", b"c")
    handles = [one.receipt_handle for one in client.receive(10, 1)]
    slow = Fault(code="ThrottlingException", entries=frozenset({1}))
    faults = [slow]
    server.kinesis.faults = lambda _: faults.pop() if faults else None
    told = client.acknowledge(handles)
    assert [one.code for one in told] == [None, "ThrottlingException", None]
    assert [one.receipt_handle for one in told] == handles
    assert [one.code for one in client.acknowledge(handles[1:2])] == [None]
