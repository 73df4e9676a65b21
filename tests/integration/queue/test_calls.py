"""Calls on a queue over real HTTP: what is sent, made of answers, and not repeated."""

from __future__ import annotations

import base64
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from sparkinesis.errors import QueueNotFoundError, ServiceError
from sparkinesis.metrics.catalogue import CALL_DURATION, CALL_RETRIES
from sparkinesis.metrics.tally import Tally
from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.client import (
    DEAD_LETTERS,
    RECORDS,
    RESTORED,
    Answered,
    QueueClient,
    Received,
)
from sparkinesis.stream.calls import caller
from sparkinesis.stream.calls.answers.guards import MIB, MisunderstoodError
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from sparkinesis.stream.calls.operations import BOUNDS, ON_QUEUES
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.session import READ_TIMEOUT
from tests.integration.stream.direct.raw_server import Behaviour, RawServer, close, http, reset
from tests.scripted import Script, answer, refusal
from tests.tallies import counted

ARN = "arn:aws:kinesis:us-east-1:123456789012:queue/4rx"
LONGEST_WAIT = 20
"""Seconds that a receive may wait (API reference)."""
EMPTY = http(b'{"QueueRecords": []}')
DONE = http(b'{"Successful": [{"ReceiptHandle": "h"}], "Failed": []}')


def wire(data: bytes, **others: Any) -> dict[str, Any]:
    return {
        "ReceiptHandle": "h",
        "RecordId": "r",
        "Data": base64.b64encode(data).decode(),
        "ApproximateArrivalTimestamp": 1.5,
        "FirstReceiveTimestamp": 2.5,
        "ReceiveCount": 1,
        **others,
    }


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.fixture(params=["directly", "by a proxy"])
def client(
    request: pytest.FixtureRequest, server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> QueueClient:
    """Behind a proxy, botocore makes the calls: over one kept connection, in these tests."""
    endpoint = server.endpoint
    if request.param == "by a proxy":
        if not hasattr(
            botocore.session.Session().create_client("kinesis", "us-east-1"), "list_queues"
        ):
            pytest.skip("botocore is older than queues")
        monkeypatch.setattr(caller, "MOST_CONNECTIONS", 1)
        monkeypatch.setattr(caller, "_clients", {})
        monkeypatch.setenv("HTTP_PROXY", server.endpoint)
        endpoint = "http://kinesis-queues.test"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return QueueClient(QueueAddress(ARN, "orders", "us-east-1", endpoint))


def test_the_records_of_a_receive_are_those_of_the_answer(
    server: RawServer, client: QueueClient
) -> None:
    small = [wire(b"\x00\xff", PartitionKey="k"), wire(b"", RecordId="s", ReceiveCount=7)]
    large = [wire(bytes([n]) * 60_000, RecordId=f"r{n}") for n in range(3)]
    server.behaviours += [http(compact({"QueueRecords": some})) for some in (small, large)]
    assert client.receive(2, 9) == [
        Received("h", "r", b"\x00\xff", "k", 1.5, 2.5, 1),
        Received("h", "s", b"", None, 1.5, 2.5, 7),
    ]
    found = QueueClient(client.address, calls=DEAD_LETTERS).receive(10, 1, 0)
    assert [(one.record_id, one.data) for one in found] == [
        (f"r{n}", bytes([n]) * 60_000) for n in range(3)
    ]
    sent = [(each.headers["x-amz-target"], json.loads(each.body)) for each in server.requests]
    assert sent == [
        (
            "Kinesis_20131202.ReceiveQueueRecords",
            {"QueueARN": ARN, "Limit": 2, "WaitTimeSeconds": 9},
        ),
        (
            "Kinesis_20131202.ReceiveDeadLetterQueueRecords",
            {"QueueARN": ARN, "Limit": 10, "WaitTimeSeconds": 1, "VisibilityTimeoutSeconds": 0},
        ),
    ]


def test_each_call_on_records_is_the_one_that_is_named(
    server: RawServer, client: QueueClient
) -> None:
    server.behaviours += [DONE] * 6
    for calls, seconds in ((RECORDS, 0), (DEAD_LETTERS, 43_200), (RESTORED, 1)):
        own = QueueClient(client.address, calls=calls)
        assert own.acknowledge(["h"]) == [Answered("h", None)]
        assert own.set_visibility([("h", seconds)]) == [Answered("h", None)]
    plain = {"QueueARN": ARN, "Entries": [{"ReceiptHandle": "h"}]}

    def hidden(seconds: int) -> dict[str, Any]:
        entry = {"ReceiptHandle": "h", "VisibilityTimeoutSeconds": seconds}
        return {"QueueARN": ARN, "Entries": [entry]}

    sent = [
        (each.headers["x-amz-target"].partition(".")[2], json.loads(each.body))
        for each in server.requests
    ]
    assert sent == [
        ("AcknowledgeQueueRecords", plain),
        ("UpdateQueueRecordsVisibility", hidden(0)),
        ("AcknowledgeDeadLetterQueueRecords", plain),
        ("UpdateDeadLetterQueueRecordsVisibility", hidden(43_200)),
        ("RestoreDeadLetterQueueRecords", plain),
        ("UpdateDeadLetterQueueRecordsVisibility", hidden(1)),
    ]


LOST: dict[str, tuple[Behaviour, type[Exception]]] = {
    "reset": (reset(), BotoCoreError),
    "closed": (close(), BotoCoreError),
    "cut": (http(b'{"QueueRecords":[', length=99, stays=False), BotoCoreError),
    "cut and framed": (http(b'{"QueueRecords":['), MisunderstoodError),
    "a page": (http(b"<html>"), MisunderstoodError),
    "without its records": (http(b"{}"), MisunderstoodError),
    "a record without a handle": (http(b'{"QueueRecords":[{"RecordId":"r"}]}'), MisunderstoodError),
    "500": (http(b"", "500 Oops"), ClientError),
    "throttled": (http(b'{"__type":"ThrottlingException"}', "400 Bad Request"), ClientError),
}


@pytest.mark.parametrize("case", LOST)
def test_a_receive_whose_answer_is_lost_is_not_sent_again(
    server: RawServer, client: QueueClient, case: str
) -> None:
    """Its records are hidden, and each receive more brings them nearer to the dead letters."""
    behaviour, kind = LOST[case]
    server.behaviours += [behaviour, EMPTY]
    with pytest.raises(kind):
        client.receive(10, 20)
    assert len(server.requests) == 1
    assert client.receive(10, 20) == []


@pytest.mark.parametrize("case", ["reset", "500", "throttled", "cut and framed"])
def test_an_acknowledgement_is_sent_once_too(
    server: RawServer, client: QueueClient, case: str
) -> None:
    """Its caller knows how long the record is its own."""
    behaviour, kind = LOST[case]
    server.behaviours += [behaviour] * 2
    with pytest.raises(kind):
        client.acknowledge(["h"])
    with pytest.raises(kind):
        client.set_visibility([("h", 9)])
    assert len(server.requests) == 2


def test_polls_in_flight_hold_no_connection_that_an_acknowledgement_needs(
    server: RawServer, client: QueueClient
) -> None:
    asked, is_over = threading.Semaphore(0), threading.Event()

    def poll(connection: socket.socket) -> bool:
        asked.release()
        is_over.wait(30)
        return EMPTY(connection)

    polls = 12
    server.behaviours += [poll] * polls
    with ThreadPoolExecutor(polls) as threads:
        try:
            polling = [threads.submit(client.receive, 10, 20) for _ in range(polls)]
            for _ in range(polls):
                assert asked.acquire(timeout=30)
            server.behaviours += [DONE] * 3
            assert client.acknowledge(["h"]) == [Answered("h", None)]
            assert client.set_visibility([("h", 30)]) == [Answered("h", None)]
            restoring = QueueClient(client.address, calls=RESTORED)
            assert restoring.acknowledge(["h"]) == [Answered("h", None)]
        finally:
            is_over.set()
        assert [each.result() for each in polling] == [[]] * polls
    held, others = server.requests[:polls], server.requests[polls:]
    assert {each.connection for each in held}.isdisjoint(each.connection for each in others)


def test_a_long_poll_ends_before_the_client_gives_it_up() -> None:
    for operation in ("ReceiveQueueRecords", "ReceiveDeadLetterQueueRecords"):
        assert min(READ_TIMEOUT, BOUNDS[operation].seconds) >= LONGEST_WAIT + 5
        assert BOUNDS[operation].seconds >= LONGEST_WAIT + 60, "the answer takes time, too"


def test_an_answer_may_be_as_large_as_ten_of_the_largest_records() -> None:
    most = 10 * (10 * MIB * 4 // 3 + 1024 + 6 * 256 + 500)
    assert most < BOUNDS["ReceiveQueueRecords"].size < 1.1 * most


def test_what_keeps_a_hold_is_given_up_in_time_to_be_tried_again() -> None:
    """The default of a visibility timeout is 30 seconds."""
    for operation in ON_QUEUES:
        if (
            operation.startswith(("Acknowledge", "Update", "Restore"))
            and operation != "UpdateQueue"
        ):
            assert BOUNDS[operation].seconds <= 30 / 3


def test_an_answer_that_is_longer_is_left(server: RawServer) -> None:
    server.behaviours.append(http(b"", length=200 * MIB, stays=False))
    client = QueueClient(QueueAddress(ARN, None, "us-east-1", server.endpoint))
    with pytest.raises(HTTPClientError, match="and may have"):
        client.receive(1, 1)


@pytest.fixture
def scripted(script: Script) -> QueueClient:
    backoff = Backoff(sleep=lambda _: None)
    return QueueClient(QueueAddress(ARN, "orders", "us-east-1", script.endpoint), backoff)


def description(**others: Any) -> dict[str, Any]:
    return {
        "QueueDescription": {
            "QueueName": "orders",
            "QueueARN": ARN,
            "QueueStatus": "ACTIVE",
            "QueueCreationTimestamp": 1.5,
            "StreamConfigurationList": [{"StreamARN": "arn:s"}],
            **others,
        }
    }


def test_a_description_is_asked_for_again(script: Script, scripted: QueueClient) -> None:
    script.on("DescribeQueue", refusal("LimitExceededException"), answer(description()))
    assert scripted.describe().name == "orders"
    assert script.of("DescribeQueue") == [{"QueueARN": ARN}] * 2


def test_an_update_changes_what_is_given(script: Script, scripted: QueueClient) -> None:
    attributes = {"VisibilityTimeoutSeconds": 60}
    script.on("UpdateQueue", answer(description(QueueAttributes=attributes)))
    assert scripted.update(visibility_timeout=60).visibility_timeout == 60
    assert script.of("UpdateQueue") == [{"QueueARN": ARN, "QueueAttributes": attributes}]


def test_a_queue_is_deleted_by_its_arn(script: Script, scripted: QueueClient) -> None:
    script.on("DeleteQueue", answer({}), refusal("ResourceNotFoundException"))
    scripted.delete()
    assert script.of("DeleteQueue") == [{"QueueARN": ARN}]
    with pytest.raises(QueueNotFoundError, match=r"There is no queue 'orders' \(4rx\)"):
        scripted.delete()


def test_calls_are_measured_by_the_queue(script: Script) -> None:
    tally = Tally()
    address = QueueAddress(ARN, "orders", "us-east-1", script.endpoint)
    client = QueueClient(address, Backoff(sleep=lambda _: None), tally)
    script.on("DescribeQueue", refusal("LimitExceededException"), answer(description()))
    script.on("ReceiveQueueRecords", answer({"QueueRecords": []}))
    client.describe()
    client.receive(1, 1)
    assert counted(tally, CALL_RETRIES) == {("queue/orders", "DescribeQueue", "throttled"): 1}
    assert counted(tally, CALL_DURATION) == {
        ("queue/orders", "DescribeQueue", "throttled"): 1,
        ("queue/orders", "DescribeQueue", "ok"): 1,
        ("queue/orders", "ReceiveQueueRecords", "ok"): 1,
    }


def test_an_error_of_one_attempt_is_explained_on_demand(
    script: Script, scripted: QueueClient
) -> None:
    script.on("ReceiveQueueRecords", refusal("KMSAccessDeniedException"))
    with pytest.raises(ClientError) as raised:
        scripted.receive(1, 1)
    said = str(scripted.explained(raised.value, "ReceiveQueueRecords"))
    assert "queue 'orders' (4rx)" in said
    assert "kms:Decrypt" in said


OLD = "kinesis/2013-12-02"


@pytest.fixture
def old_botocore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's model as it was before there were queues."""
    loader = botocore.session.Session().get_component("data_loader")
    model = loader.load_service_model("kinesis", "service-2")
    model["operations"] = {
        name: each for name, each in model["operations"].items() if "Queue" not in name
    }
    (tmp_path / OLD).mkdir(parents=True)
    (tmp_path / OLD / "service-2.json").write_text(json.dumps(model))
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(caller, "_clients", {})


@pytest.mark.usefixtures("old_botocore")
def test_an_old_botocore_is_named_at_once(script: Script) -> None:
    """It has to prepare the requests where a setting is not known here."""
    waits: list[float] = []
    address = QueueAddress(ARN, "orders", "us-east-1", script.endpoint)
    client = QueueClient(address, Backoff(sleep=waits.append))
    with pytest.raises(ServiceError, match=r"older than DescribeQueue.*boto3>=1\.44\.5"):
        client.describe()
    assert (waits, script.calls) == ([], [])


@pytest.mark.usefixtures("old_botocore")
def test_an_old_botocore_makes_the_errors_of_operations_that_it_does_not_know(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = QueueAddress(ARN, "orders", "us-east-1", script.endpoint)
    client = caller.call_client(address)
    assert isinstance(client, DirectClient)
    by_botocore = client._by_botocore()
    assert "DescribeQueue" not in by_botocore._service.operation_names
    monkeypatch.delenv("AWS_DATA_PATH")
    known = caller._open(address.region, address.endpoint, address.credentials)
    monkeypatch.setattr(known, "_botocore", by_botocore)
    script.on("DescribeQueue", refusal("ResourceNotFoundException"))
    with pytest.raises(ClientError, match=r"ResourceNotFoundException\).*Said so"):
        known.describe_queue(QueueARN=ARN)
