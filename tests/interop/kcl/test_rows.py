"""Differences between two tables' rows are found, and told apart from explained ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.kcl.rows import row_problems

ROW: dict[str, Any] = {
    "leaseKey": {"S": "1:web:2:shardId-0"},
    "leaseCounter": {"N": "3"},
    "checkpoint": {"S": "49"},
    "checkpointSubSequenceNumber": {"N": "4"},
    "childShardIds": {"SS": ["b", "a"]},
}


def table(**changes: Any) -> dict[str, dict[str, Any]]:
    row = {**ROW, **changes}
    return {"k": {name: value for name, value in row.items() if value is not None}}


@pytest.mark.parametrize(
    "java",
    [
        {},
        {"childShardIds": {"SS": ["a", "b"]}},
        {"leaseCounter": {"N": "9"}},
        {"entityType": {"S": "LEASE"}},
        {"throughputKBps": {"N": "1.5"}},
        {"leaseOwner": {"S": "j1"}},
    ],
)
def test_equal_and_explained_rows_are_fine(java: dict[str, Any]) -> None:
    assert row_problems(table(), table(**java)) == []


@pytest.mark.parametrize(
    ("java", "text"),
    [
        ({"checkpointSubSequenceNumber": {"N": "5"}}, "checkpointSubSequenceNumber is N 4 in our"),
        ({"checkpointSubSequenceNumber": {"S": "4"}}, "S 4 in Java's"),
        ({"childShardIds": None}, "childShardIds is SS a, b in our rows and - in Java's"),
        ({"leaseCounter": {"S": "3"}}, "leaseCounter"),
        ({"leaseCounter": None}, "leaseCounter"),
        ({"shardId": {"S": "shardId-0"}}, "shardId is - in our rows"),
    ],
)
def test_other_differences_are_not(java: dict[str, Any], text: str) -> None:
    (problem,) = row_problems(table(), table(**java))
    assert text in problem


def test_a_lease_that_one_table_lacks_is_found() -> None:
    assert row_problems(table(), {}) == ["only our table has the lease k"]
    assert row_problems({}, table()) == ["only Java's table has the lease k"]
