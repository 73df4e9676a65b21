"""Binary attributes in answers of DynamoDB: bytes, as botocore has them, wherever they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.lease.table.client import dynamodb_client
from sparkinesis.stream.address import CredentialSource
from sparkinesis.stream.calls.session import open_client
from tests.integration.stream.direct.raw_server import RawServer, http, serving

ROW = {
    "leaseKey": {"S": "k"},
    "pendingCheckpointState": {"B": "AP8="},
    "foreign": {"L": [{"B": "AQ=="}, {"M": {"B": {"BS": ["Ag==", "Aw=="]}}}, {"N": "1"}]},
    "list": {"SS": ["B", "BS"]},
    "empty": {"NULL": True},
}
ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Scan": (
        {"TableName": "t"},
        {"Items": [ROW, ROW], "LastEvaluatedKey": {"leaseKey": {"B": "BA=="}}},
    ),
    "Query": ({"TableName": "t"}, {"Items": [ROW]}),
    "GetItem": ({"TableName": "t", "Key": {"leaseKey": {"S": "k"}}}, {"Item": ROW}),
    "BatchGetItem": (
        {"RequestItems": {"t": {"Keys": [{"leaseKey": {"S": "k"}}]}}},
        {
            "Responses": {"t": [ROW, ROW]},
            "UnprocessedKeys": {"t": {"Keys": [{"leaseKey": {"S": "k"}}]}},
        },
    ),
    "UpdateItem": ({"TableName": "t", "Key": {"leaseKey": {"S": "k"}}}, {"Attributes": ROW}),
    "BatchExecuteStatement": (
        {"Statements": [{"Statement": "UPDATE"}]},
        {
            "Responses": [
                {"TableName": "t", "Item": ROW},
                {"Error": {"Code": "ConditionalCheckFailed", "Message": "no", "Item": ROW}},
                {"TableName": "t"},
            ]
        },
    ),
}


@pytest.fixture
def server() -> Iterator[RawServer]:
    with serving() as running:
        yield running
    dynamodb_client.cache_clear()


@pytest.mark.parametrize("operation", ANSWERS)
def test_an_answer_is_that_of_botocore(server: RawServer, operation: str) -> None:
    request, answer = ANSWERS[operation]
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
    source = CredentialSource()
    plain = open_client("dynamodb", source, "us-east-1", server.endpoint)
    found = []
    for client in (plain, dynamodb_client("us-east-1", server.endpoint, source)):
        server.behaviours.append(http(json.dumps(answer).encode()))
        given = getattr(client, method)(**request)
        assert given.pop("ResponseMetadata")["HTTPStatusCode"] == 200
        found.append(given)
    assert found[0] == found[1]
    assert "\\xff" in repr(found[1])


def test_bytes_are_sent_as_botocore_sends_them(server: RawServer) -> None:
    source = CredentialSource()
    plain = open_client("dynamodb", source, "us-east-1", server.endpoint)
    for client in (plain, dynamodb_client("us-east-1", server.endpoint, source)):
        server.behaviours.append(http())
        client.put_item(
            TableName="t",
            Item={"leaseKey": {"S": "k\u00e9"}, "state": {"B": b"\x00\xff"}, "set": {"BS": [b"a"]}},
        )
    bodies = [json.loads(request.body) for request in server.requests]
    assert bodies[0] == bodies[1]
