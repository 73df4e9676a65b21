"""The lease table model answers as DynamoDB does, as far as moto does."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint, decode_lease, encode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.update import Update
from sparkinesis.local import LocalServer
from tests.examples import examples
from tests.foreign_dynamodb import plain_moto
from tests.kcl import create_table
from tests.simulation.dynamodb import LeaseTableModel
from tests.simulation.history import TableServer

_AT = ExtendedSequenceNumber("500", 3)
_names = itertools.count()


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[Any]:
    with LocalServer(dynamodb=True) as server:
        yield server.client("dynamodb")


UPDATES: dict[str, Callable[[Lease], Update]] = {
    "renew": requests.renew,
    "renew with throughput": lambda lease: requests.with_throughput(requests.renew(lease), 2.5),
    "take": lambda lease: requests.take(lease, "a"),
    "take for another": lambda lease: requests.take(lease, "b"),
    "assign": lambda lease: requests.assign(lease, "b"),
    "handoff": lambda lease: requests.initiate_handoff(
        replace(lease, owner=lease.owner or "c", checkpoint_owner=None), "b"
    ),
    "withdraw": lambda lease: requests.withdraw_handoff(
        replace(lease, checkpoint_owner=lease.checkpoint_owner or "c")
    ),
    "evict": requests.evict,
    "checkpoint": lambda lease: requests.checkpoint(lease, _AT),
    "checkpoint at an instant": lambda lease: requests.checkpoint(
        lease, ExtendedSequenceNumber("LATEST"), 1_700_000_000_000
    ),
    "finish": lambda lease: requests.checkpoint(lease, ExtendedSequenceNumber("SHARD_END")),
    "prepare": lambda lease: requests.prepare(lease, PendingCheckpoint(_AT, b"state")),
    "prepare without state": lambda lease: requests.prepare(lease, PendingCheckpoint(_AT)),
    "children": lambda lease: requests.add_children(lease, ["x", "y"]),
    "hash range": lambda lease: requests.add_hash_range(lease, (0, 99)),
    "reset": lambda lease: requests.reset(lease, ExtendedSequenceNumber("TRIM_HORIZON")),
}

_steps = st.lists(
    st.tuples(
        st.sampled_from(("create", "delete", "get", "batch", *UPDATES)),
        st.sampled_from(("one", "two")),
        st.integers(0, 30),
    ),
    min_size=5,
    max_size=25,
)


@settings(derandomize=True, max_examples=examples(40), deadline=None)
@given(steps=_steps)
def test_the_model_answers_as_moto_does(dynamodb: Any, steps: list[tuple[str, str, int]]) -> None:
    table = f"model-{next(_names)}"
    create_table(dynamodb, table)
    model = _model(table)
    known: dict[str, list[Lease]] = {"one": [], "two": []}
    for what, key, which in steps:
        seen = known[key]
        lease = seen[-1 - which % min(3, len(seen))] if seen else _new(key)
        operation, request = _request(table, what, lease)
        expected = _answer(functools.partial(_by_boto, dynamodb, operation, request))
        found = _answer(functools.partial(model.serve, operation, request))
        assert found == expected, (what, lease)
        row = model.rows.get(key)
        if row is not None:
            seen.append(decode_lease(row) or lease)
    items = dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    kept = model.serve("Scan", {"ConsistentRead": True})["Items"]
    assert _plain(kept) == _plain(sorted(items, key=lambda row: row["leaseKey"]["S"]))
    dynamodb.delete_table(TableName=table)


def test_the_model_of_a_moto_without_our_mending_answers_batches_as_moto_does() -> None:
    with plain_moto() as url:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        client = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=url, **keys)
        create_table(client, "model")
        model = _model("model", "moto")
        renewal = requests.renew(_new("one")).statement("model")
        refused = requests.renew(replace(_new("one"), counter=99)).statement("model")
        missing = requests.renew(_new("two")).statement("model")
        for operation, request in (
            _request("model", "create", _new("one")),
            ("BatchExecuteStatement", {"Statements": [renewal, refused, missing]}),
            ("BatchExecuteStatement", {"Statements": [renewal]}),
            _request("model", "get", _new("one")),
            _request("model", "get", _new("two")),
        ):
            expected = _answer(functools.partial(_by_boto, client, operation, request))
            found = _answer(functools.partial(model.serve, operation, request))
            assert found == expected, request


def _model(name: str, server: TableServer = "DynamoDB") -> LeaseTableModel:
    model = LeaseTableModel(name, lambda: 0.0, random.Random(0))
    model.server = server
    model.serve("CreateTable", {})
    return model


def _new(key: str) -> Lease:
    return Lease(key, key, ExtendedSequenceNumber("100"), parent_ids=("p", "q"))


def _request(table: str, what: str, lease: Lease) -> tuple[str, dict[str, Any]]:
    if what == "create":
        return "PutItem", {
            "TableName": table,
            "Item": encode_lease(_new(lease.key)),
            "ConditionExpression": "attribute_not_exists(leaseKey)",
        }
    if what == "delete":
        return "DeleteItem", requests.delete(lease, table)
    if what == "get":
        return "GetItem", {
            "TableName": table,
            "Key": {"leaseKey": {"S": lease.key}},
            "ConsistentRead": True,
        }
    if what == "batch":
        updates = [
            requests.renew(lease),
            requests.with_throughput(requests.renew(replace(lease, counter=99)), 1.5),
        ]
        return "BatchExecuteStatement", {"Statements": [one.statement(table) for one in updates]}
    return "UpdateItem", UPDATES[what](lease).request(table)


def _by_boto(dynamodb: Any, operation: str, request: dict[str, Any]) -> Any:
    return getattr(dynamodb, re.sub("(?<!^)(?=[A-Z])", "_", operation).lower())(**request)


def _answer(call: Callable[[], Any]) -> Any:
    """The outcome of a call: its answer, or its error's code and row."""
    try:
        answer = call()
    except ClientError as error:
        return error.response["Error"]["Code"], _plain(error.response.get("Item"))
    return _plain(answer)


_BESIDES = {"Message", "TableName", "ConsumedCapacity", "ResponseMetadata"}


def _plain(value: Any) -> Any:
    """Makes answers comparable: sorts sets of strings, and ignores the texts of errors."""
    if isinstance(value, dict):
        return {
            name: sorted(item) if name == "SS" else _plain(item)
            for name, item in value.items()
            if name not in _BESIDES
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value


def test_another_table_is_not_there(dynamodb: Any) -> None:
    """A worker asks for those of Java KCLs, where a row looks like one of theirs."""
    request = {"TableName": "beside", "Key": {"key": {"S": "Migration3.0"}}}
    with pytest.raises(ClientError) as answered:
        dynamodb.get_item(**request)
    model = LeaseTableModel("app", lambda: 0.0, random.Random(0))
    with pytest.raises(ClientError) as simulated:
        model.serve("GetItem", request)
    codes = [error.value.response["Error"]["Code"] for error in (answered, simulated)]
    assert codes == ["ResourceNotFoundException"] * 2
