"""Faults, as seen by a client."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from sparkinesis.local import Call, Fault, LocalServer
from tests.http2 import connected
from tests.integration.local.conftest import once, records
from tests.kcl import create_table


@pytest.mark.parametrize(("when", "left"), [("before", []), ("after", [b"a"])])
def test_a_dropped_connection(
    server: LocalServer, kinesis: Any, when: str, left: list[bytes]
) -> None:
    kinesis.create_stream(StreamName="s", ShardCount=1)
    server.kinesis.faults = lambda _: Fault.dropped("after" if when == "after" else "before")
    with pytest.raises(ConnectionClosedError):
        kinesis.put_record(StreamName="s", Data=b"a", PartitionKey="k")
    assert server.kinesis.calls.select("PutRecord")[0].error == "Dropped"
    server.kinesis.faults = None
    assert records(server) == left


def test_a_client_that_left_before_its_connection_was_to_be_dropped(
    server: LocalServer, kinesis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.kinesis.faults = lambda _: Fault(drop="after", delay_ms=300)
    with connected(server.endpoint_url) as leaver:
        leaver.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: Kinesis_20131202.ListStreams\r\n"
            b"Content-Type: application/x-amz-json-1.1\r\nAuthorization: x\r\n"
            b"Content-Length: 2\r\n\r\n{}"
        )
    with pytest.raises(ConnectionClosedError):
        kinesis.list_streams()  # begun later, so the first one is over by then
    assert server.kinesis.calls.count("ListStreams") == 2
    assert caplog.messages == []


def test_a_slow_answer_holds_up_no_other_call(server: LocalServer, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="s", ShardCount=1)
    slow = server.client("kinesis", config=_impatient())
    server.kinesis.faults = lambda call: (
        Fault.delay(60_000) if call.operation == "PutRecord" else None
    )
    with pytest.raises(ReadTimeoutError):
        slow.put_record(StreamName="s", Data=b"a", PartitionKey="k")
    begin = time.monotonic()
    assert records(server) == [b"a"], "it took effect at once"
    server.stop()
    assert time.monotonic() - begin < 5, "stopping does not wait for delayed answers"


def _impatient() -> Any:
    from botocore.config import Config  # noqa: PLC0415

    return Config(read_timeout=0.3, retries={"total_max_attempts": 1})


def test_dynamodb_calls_go_through_the_fault_plan_and_the_log(server: LocalServer) -> None:
    table = once(server, "dynamodb")
    seen: list[Call] = []

    def plan(call: Call) -> Fault | None:
        seen.append(call)
        return Fault.error("ConditionalCheckFailedException", "injected")

    server.kinesis.faults = plan
    with pytest.raises(table.exceptions.ConditionalCheckFailedException, match="injected"):
        table.put_item(TableName="leases", Item={"leaseKey": {"S": "a"}})
    assert (seen[0].operation, seen[0].stream, seen[0].ordinal) == ("PutItem", "leases", 1)
    (logged,) = server.kinesis.calls.select("PutItem")
    assert (logged.stream, logged.error) == ("leases", "ConditionalCheckFailedException")
    server.kinesis.faults = lambda _: Fault.error("ThrottlingException", status=400)
    with pytest.raises(ClientError, match="ThrottlingException"):
        table.list_tables()


def test_statements_of_a_batch_fail_each_on_its_own(server: LocalServer) -> None:
    client = once(server, "dynamodb")
    create_table(client, "rows", "id")
    for name in "abc":
        client.put_item(TableName="rows", Item={"id": {"S": name}, "n": {"N": "1"}})

    def add_one(n: int) -> list[str | None]:
        text = 'UPDATE "rows" SET n=? WHERE id=? AND n=?'
        parameters = [[{"N": str(n + 1)}, {"S": name}, {"N": str(n)}] for name in "abc"]
        answer = client.batch_execute_statement(
            Statements=[{"Statement": text, "Parameters": given} for given in parameters]
        )
        return [one.get("Error", {}).get("Code") for one in answer["Responses"]]

    def numbers() -> list[str]:
        rows = [client.get_item(TableName="rows", Key={"id": {"S": name}}) for name in "abc"]
        return [row["Item"]["n"]["N"] for row in rows]

    def fail(code: str, *entries: int, takes_effect: bool = False) -> None:
        fault = Fault(code, entries=frozenset(entries), takes_effect=takes_effect)
        server.kinesis.faults = lambda call: (
            fault if call.operation == "BatchExecuteStatement" else None
        )

    fail("ThrottlingError", 0, 2)
    assert add_one(1) == ["ThrottlingError", None, "ThrottlingError"]
    assert numbers() == ["1", "2", "1"]
    fail("InternalServerError", 0, takes_effect=True)
    assert add_one(1) == ["InternalServerError", "ConditionalCheckFailed", None]
    assert numbers() == ["2", "2", "2"]
    fail("TransactionConflict", 0, 1, 2)
    assert add_one(2) == ["TransactionConflict"] * 3
    assert numbers() == ["2", "2", "2"]


def test_a_call_to_dynamodb_takes_effect_and_fails_all_the_same(server: LocalServer) -> None:
    client = once(server, "dynamodb")
    server.kinesis.faults = lambda call: (
        Fault("InternalServerError", status=500, takes_effect=True)
        if call.operation == "CreateTable"
        else None
    )
    with pytest.raises(client.exceptions.InternalServerError):
        create_table(client, "made", "id")
    assert client.list_tables()["TableNames"] == ["made"]
