"""UPDATE statements of BatchExecuteStatement over HTTP, with DynamoDB's responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sparkinesis.local import LocalServer
from tests.integration.local.conftest import once
from tests.kcl import create_table

_numbers = itertools.count()
ROW: dict[str, Any] = {"id": {"S": "x"}, "n": {"N": "1"}, "s": {"S": "kept"}}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with LocalServer(dynamodb=True) as running:
        yield once(running, "dynamodb")


@pytest.fixture
def table(client: Any) -> str:
    name = f"my_table_{next(_numbers)}"
    create_table(client, name, "id")
    client.put_item(TableName=name, Item=ROW)
    return name


def run(client: Any, *statements: tuple[str, list[Any]], **more: str) -> list[dict[str, Any]]:
    answer = client.batch_execute_statement(
        Statements=[{"Statement": text, "Parameters": given, **more} for text, given in statements]
    )
    responses: list[dict[str, Any]] = answer["Responses"]
    return responses


def row(client: Any, table: str) -> Any:
    return client.get_item(TableName=table, Key={"id": {"S": "x"}})["Item"]


@pytest.mark.parametrize(
    "changes",
    ["SET n=? SET a=? REMOVE s", 'set n = ?, "a" = ? remove s', "SET n=?\nSET a=?REMOVE s"],
)
def test_what_is_set_and_removed(client: Any, table: str, changes: str) -> None:
    parameters = [{"N": "2"}, {"L": [{"S": "deep"}]}, {"S": "x"}, {"N": "1"}]
    text = f'UPDATE "{table}" {changes} WHERE id=? AND n=? AND gone IS MISSING'
    assert run(client, (text, parameters)) == [{"TableName": table}]
    assert row(client, table) == {
        "id": {"S": "x"},
        "n": {"N": "2"},
        "a": {"L": [{"S": "deep"}]},
    }


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("id=? AND n=?", [{"S": "x"}, {"N": "7"}]),
        ("n=? AND id=?", [{"N": "7"}, {"S": "x"}]),
        ("id=? AND s IS MISSING", [{"S": "x"}]),
        ("id=? AND other IS NOT MISSING", [{"S": "x"}]),
    ],
)
def test_a_condition_that_fails_says_so_and_changes_nothing(
    client: Any, table: str, condition: str, parameters: list[Any]
) -> None:
    statement = (f'UPDATE "{table}" SET n=? WHERE {condition}', [{"N": "2"}, *parameters])
    (response,) = run(client, statement)
    assert response["Error"]["Code"] == "ConditionalCheckFailed"
    assert "Item" not in response["Error"]
    (response,) = run(client, statement, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert response["Error"]["Item"] == ROW
    assert row(client, table) == ROW


@pytest.mark.parametrize("name", ["2026-orders", "-a", ".b_c"])
def test_a_table_may_have_any_name(client: Any, name: str) -> None:
    create_table(client, name, "id")
    client.put_item(TableName=name, Item=ROW)
    statement = f'UPDATE "{name}" SET n=? WHERE id=? AND n=?'
    (response,) = run(client, (statement, [{"N": "2"}, {"S": "x"}, {"N": "7"}]))
    assert response.get("Error", {}).get("Code") == "ConditionalCheckFailed"
    assert row(client, name) == ROW


def test_a_row_that_is_missing_is_not_created(client: Any, table: str) -> None:
    statement = (f'UPDATE "{table}" SET n=? WHERE id=?', [{"N": "2"}, {"S": "y"}])
    (response,) = run(client, statement, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert response["Error"]["Code"] == "ConditionalCheckFailed"
    assert "Item" not in response["Error"]
    assert client.scan(TableName=table)["Count"] == 1


def test_each_statement_is_on_its_own(client: Any, table: str) -> None:
    text = f'UPDATE "{table}" SET n=? WHERE id=? AND n=?'
    responses = run(
        client,
        (text, [{"N": "2"}, {"S": "x"}, {"N": "1"}]),
        (text, [{"N": "3"}, {"S": "x"}, {"N": "1"}]),
        ('UPDATE "none" SET n=? WHERE id=?', [{"N": "2"}, {"S": "x"}]),
        (text, [{"N": "4"}, {"S": "x"}, {"N": "2"}]),
    )
    codes = [response.get("Error", {}).get("Code") for response in responses]
    assert codes == [None, "ConditionalCheckFailed", "ResourceNotFound", None]
    assert row(client, table)["n"] == {"N": "4"}


def test_a_key_cannot_be_changed(client: Any, table: str) -> None:
    (response,) = run(client, (f'UPDATE "{table}" SET id=? WHERE id=?', [{"S": "z"}, {"S": "x"}]))
    assert response["Error"]["Code"] == "ValidationError"
    assert row(client, table) == ROW


def test_other_statements_stay_with_moto(client: Any, table: str) -> None:
    statement = (f"SELECT * FROM {table} WHERE n = ?", [{"N": "1"}])
    (response,) = run(client, statement)
    assert "must specify the primary key" in response["Error"]["Message"]


def test_more_than_25_statements_are_refused(client: Any, table: str) -> None:
    statement = (f'UPDATE "{table}" SET n=? WHERE id=?', [{"N": "2"}, {"S": "x"}])
    with pytest.raises(ClientError, match="ValidationException"):
        run(client, *[statement] * 26)
    assert row(client, table) == ROW
