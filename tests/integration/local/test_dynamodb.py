"""DynamoDB and STS on the same endpoint, and the life of moto's process."""

from __future__ import annotations

import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from moto.core.common_models import BaseModel
from moto.dynamodb.models.dynamo_type import DynamoType, Item

from sparkinesis.local import LocalServer, LocalServerError
from sparkinesis.local.wire.dynamodb import stop_recording_models
from tests.integration.local.conftest import once
from tests.journal import PATIENCE
from tests.kcl import create_table


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    """Return a server shared by these tests, because moto takes a second to start."""
    with LocalServer(dynamodb=True) as running:
        yield running


@pytest.fixture
def table(shared: LocalServer) -> Any:
    client = once(shared, "dynamodb")
    create_table(client, "leases")
    yield client
    client.delete_table(TableName="leases")


def put_new(table: Any, owner: str) -> bool:
    try:
        table.put_item(
            TableName="leases",
            Item={"leaseKey": {"S": "a"}, "owner": {"S": owner}},
            ConditionExpression="attribute_not_exists(leaseKey)",
        )
    except table.exceptions.ConditionalCheckFailedException:
        return False
    return True


def test_an_update_in_the_older_form_keeps_the_types_of_its_values(table: Any) -> None:
    """A Java KCL updates leases so; the state beside a prepared checkpoint is bytes."""
    put_new(table, "one")
    values: dict[str, Any] = {
        "state": {"B": b"half \xff done"},
        "states": {"BS": [b"a\x00", b"b"]},
        "flag": {"BOOL": True},
        "text": {"S": "t"},
        "number": {"N": "7"},
        "names": {"SS": ["a"]},
    }
    puts = {name: {"Action": "PUT", "Value": value} for name, value in values.items()}
    del puts["state"]["Action"]  # the default
    table.update_item(
        TableName="leases",
        Key={"leaseKey": {"S": "a"}},
        AttributeUpdates={**puts, "owner": {"Action": "DELETE"}},
    )
    item = table.get_item(TableName="leases", Key={"leaseKey": {"S": "a"}})["Item"]
    assert item == {"leaseKey": {"S": "a"}, **values}


def test_a_row_has_values_of_all_types(table: Any) -> None:
    row: dict[str, Any] = {
        "leaseKey": {"S": "a\u00e9"},
        "N": {"N": "1.5"},
        "BOOL": {"BOOL": False},
        "NULL": {"NULL": True},
        "B": {"B": b"\x00\x01"},
        "SS": {"SS": ["a", "b"]},
        "NS": {"NS": ["1"]},
        "BS": {"BS": [b"\x00\x01"]},
        "L": {"L": [{"S": "a"}, {"L": []}]},
        "M": {"M": {"a": {"N": "1"}, "b": {"M": {"c": {"BOOL": True}}}}},
    }
    table.put_item(TableName="leases", Item=row)
    assert table.scan(TableName="leases")["Items"] == [row]


def test_an_index_that_exists_is_refused_and_stays(table: Any) -> None:
    """Two Java workers that start at the same time both create the index of the lease table."""
    index = {
        "IndexName": "LeaseOwnerToLeaseKeyIndex",
        "KeySchema": [{"AttributeName": "leaseOwner", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    definitions = [
        {"AttributeName": name, "AttributeType": "S"} for name in ("leaseKey", "leaseOwner")
    ]

    def create() -> None:
        table.update_table(
            TableName="leases",
            AttributeDefinitions=definitions,
            GlobalSecondaryIndexUpdates=[{"Create": index}],
        )

    create()
    with pytest.raises(ClientError) as caught:
        create()
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert "already exists" in caught.value.response["Error"]["Message"]
    (found,) = table.describe_table(TableName="leases")["Table"]["GlobalSecondaryIndexes"]
    assert found["IndexName"] == index["IndexName"]


def test_of_many_conditional_puts_at_once_one_succeeds(table: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: put_new(table, str(i)), range(32)))
    assert won.count(True) == 1


def test_sts_and_kinesis_name_the_same_account(shared: LocalServer) -> None:
    account = once(shared, "sts").get_caller_identity()["Account"]
    kinesis = once(shared, "kinesis")
    kinesis.create_stream(StreamName="s", ShardCount=1)
    summary = kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    assert summary["StreamARN"].split(":")[4] == account
    assumed = once(shared, "sts").assume_role(
        RoleArn=f"arn:aws:iam::{account}:role/reader", RoleSessionName="tests"
    )
    assert assumed["Credentials"]["SessionToken"]
    (call,) = shared.kinesis.calls.select("AssumeRole")
    assert call.access_key == "local"


def test_without_moto_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with LocalServer() as server, pytest.raises(ClientError) as caught:
        once(server, "dynamodb").list_tables()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501
    with pytest.raises(LocalServerError, match=r"pip install 'sparkinesis\[local\]'"):
        LocalServer(dynamodb=True).start()


NOT_INSTALLED = """
antlr4 aws_xray_sdk cfnlint graphql joserfc jsonpath_ng jsonschema networkx openapi_spec_validator
pyparsing sympy
"""


def test_dynamodb_and_sts_need_nothing_of_the_other_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra `local` does without what moto's own extra `server` installs for all services."""
    for name in NOT_INSTALLED.split():
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with LocalServer() as server:
        assert once(server, "sts").get_caller_identity()["Account"]
        dynamodb = once(server, "dynamodb")
        create_table(dynamodb, "leases")
        dynamodb.put_item(TableName="leases", Item={"leaseKey": {"S": "a"}, "owner": {"S": "one"}})
        # One statement for our own code, and one for moto's parser.
        dynamodb.batch_execute_statement(
            Statements=[
                {
                    "Statement": 'UPDATE "leases" SET owner=? WHERE leaseKey=? AND owner=?',
                    "Parameters": [{"S": "two"}, {"S": "a"}, {"S": "one"}],
                }
            ]
        )
        (answer,) = dynamodb.batch_execute_statement(
            Statements=[{"Statement": "SELECT * FROM leases WHERE leaseKey = 'a'"}]
        )["Responses"]
        assert answer["Item"]["owner"] == {"S": "two"}


PARENT = """
import sys, time
from sparkinesis.local import LocalServer, LocalServerError
from sparkinesis.local.wire.dynamodb import stop_recording_models
server = LocalServer(dynamodb=True).start()
print(server.moto_pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        # A process that ended but was not waited for (its parent is gone) still has a directory.
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_server_stops_although_calls_wait_for_their_turn() -> None:
    server = LocalServer(port=0, dynamodb=True).start()
    client = server.client("dynamodb", config=Config(retries={"total_max_attempts": 1}))

    def call_on() -> None:
        while True:
            try:
                client.list_tables()
            except (ClientError, BotoCoreError):
                return

    callers = [threading.Thread(target=call_on, daemon=True) for _ in range(12)]
    for caller in callers:
        caller.start()
    end = time.monotonic() + PATIENCE
    while server.kinesis.calls.count("ListTables") < 50:
        assert time.monotonic() < end
        time.sleep(0.01)
    stopping = threading.Thread(target=server.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    for caller in callers:
        caller.join(PATIENCE)
        assert not caller.is_alive()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_moto_dies_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_rows_that_were_answered_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # Put back afterwards: this is the tests' process, and not the child.
    monkeypatch.setattr(BaseModel, "__new__", BaseModel.__new__)
    key = {"leaseKey": {"S": "shard-0"}}
    for is_kept in (True, False):
        if not is_kept:
            stop_recording_models()
        row = Item(DynamoType(key["leaseKey"]), None, key)
        answered = weakref.ref(copy.deepcopy(row))
        gc.collect()
        assert (answered() is not None) == is_kept
