"""The lease tables of a local server refuse what a crashed worker writes."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, decode_lease, encode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.update import Update
from sparkinesis.local.lease_tables import LeaseTables

NEW = Lease("one", "one", ExtendedSequenceNumber("100"))


def call(tables: LeaseTables, operation: str, request: dict[str, Any]) -> Any:
    target = f"DynamoDB_20120810.{operation}".encode()
    body = msgspec.json.encode(request)
    answer = tables.forward("dynamodb", "POST", "/", [(b"x-amz-target", target)], body)
    return answer.status, msgspec.json.decode(answer.body) if answer.status != 501 else None


def write(tables: LeaseTables, update: Update, *, in_batch: bool = False) -> bool:
    """Return whether the write was accepted."""
    if not in_batch:
        status, _ = call(tables, "UpdateItem", update.request("app"))
        return bool(status == 200)
    _, answer = call(tables, "BatchExecuteStatement", {"Statements": [update.statement("app")]})
    return "Error" not in answer["Responses"][0]


def row(tables: LeaseTables) -> Lease:
    (found,) = tables.rows("app")
    lease = decode_lease(found)
    assert isinstance(lease, Lease)
    return lease


def owned() -> LeaseTables:
    tables = LeaseTables()
    call(tables, "CreateTable", {"TableName": "app"})
    item = {
        "TableName": "app",
        "Item": encode_lease(NEW),
        "ConditionExpression": "attribute_not_exists(leaseKey)",
    }
    assert call(tables, "PutItem", item) == (200, {})
    assert write(tables, requests.take(row(tables), "a"))
    assert row(tables).owner == "a"
    return tables


def test_a_crashed_worker_writes_nothing_and_takes_nothing() -> None:
    tables = owned()
    before = row(tables)
    tables.crash("a")
    assert row(tables) == replace(before, owner=None)
    for in_batch in (False, True):
        assert not write(tables, requests.renew(before), in_batch=in_batch)
        assert not write(tables, requests.take(row(tables), "a"), in_batch=in_batch)
    assert not write(tables, requests.checkpoint(before, ExtendedSequenceNumber("200")))
    assert not write(tables, requests.evict(before))
    assert write(tables, requests.take(row(tables), "b"))
    assert row(tables).owner == "b"


def test_a_crashed_worker_neither_leads_nor_tells_its_load() -> None:
    tables = owned()
    for who in ("a", "b"):
        stats = {
            "TableName": "app",
            "Key": {"leaseKey": {"S": who}},
            "UpdateExpression": "SET entityType = :entityType",
            "ExpressionAttributeValues": {":entityType": {"S": "WORKER_METRIC_STATS"}},
        }
        assert call(tables, "UpdateItem", stats)[0] == 200
    lock = {
        "TableName": "app",
        "Item": {"leaseKey": {"S": "Leader"}, "ownerName": {"S": "a"}},
        "ConditionExpression": "attribute_not_exists(leaseKey)",
    }
    assert call(tables, "PutItem", lock)[0] == 200
    tables.crash("a")
    assert [one["leaseKey"]["S"] for one in tables.rows("app")] == ["one", "b"]
    assert call(tables, "PutItem", lock)[0] == 400
    stats["Key"] = {"leaseKey": {"S": "a"}}
    assert call(tables, "UpdateItem", stats)[0] == 400


def test_a_table_that_is_deleted_is_not_there_until_it_is_made_again() -> None:
    """As that of a replay, which is deleted in the end."""
    tables, named = owned(), {"TableName": "app"}
    assert call(tables, "ListTables", {}) == (200, {"TableNames": ["app"]})
    assert call(tables, "DeleteTable", named)[0] == 200
    for operation in ("Scan", "DeleteTable"):
        status, answer = call(tables, operation, named)
        assert (status, answer["__type"].partition("#")[2]) == (400, "ResourceNotFoundException")
    assert call(tables, "ListTables", {}) == (200, {"TableNames": []})
    assert call(tables, "CreateTable", named)[0] == 200
    assert tables.rows("app") == []


def test_an_answer_has_as_many_rows_as_one_of_dynamodb_and_says_where_to_go_on() -> None:
    """A client refuses an answer without an end, however many leases a table has."""
    tables, named = owned(), {"TableName": "app", "IndexName": "by-owner"}
    index = {"GlobalSecondaryIndexUpdates": [{"Create": {"IndexName": "by-owner"}}]}
    assert call(tables, "UpdateTable", {**named, **index})[0] == 200
    keys = [f"shardId-{number:012}" for number in range(9_000)]
    for key in keys:
        item = {"leaseKey": {"S": key}, "leaseOwner": {"S": "b"}}
        assert call(tables, "PutItem", {**named, "Item": item})[0] == 200
    wanted = {**named, "ExpressionAttributeValues": {":owner": {"S": "b"}}}
    for operation, first in (("Scan", ["one"]), ("Query", [])):
        found: list[str] = []
        pages, more = 0, dict[str, Any]()
        while pages == 0 or more:
            status, answer = call(tables, operation, {**wanted, **more})
            assert (status, len(answer["Items"]) <= 4_000) == (200, True)
            found += [row["leaseKey"]["S"] for row in answer["Items"]]
            last = answer.get("LastEvaluatedKey")
            more = {"ExclusiveStartKey": last} if last else {}
            pages += 1
        assert (found, pages) == (sorted([*first, *keys]), 3)


def test_what_workers_do_not_call_is_not_served() -> None:
    tables = owned()
    assert call(tables, "UpdateTimeToLive", {"TableName": "app"}) == (501, None)
    assert tables.forward("sts", "POST", "/", [], b"").status == 501
