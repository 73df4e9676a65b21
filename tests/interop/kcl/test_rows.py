"""Differences between two tables' rows are found, and told apart from explained ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.kcl.rows import compare, leases_of, row_problems, state_of

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


def test_what_only_java_may_write_may_not_be_ours_alone() -> None:
    (problem,) = row_problems(table(entityType={"S": "LEASE"}), table())
    assert "entityType" in problem


def test_a_lease_that_one_table_lacks_is_found() -> None:
    assert row_problems(table(), {}) == ["only our table has the lease k"]
    assert row_problems({}, table()) == ["only Java's table has the lease k"]


def test_the_comparison_counts_rows_and_shows_one_that_differs() -> None:
    ours = {"k": ROW, "l": ROW}
    java = {"k": ROW, "l": {**ROW, "leaseCounter": {"N": "8"}}}
    (counter,) = (one for one in compare(ours, java) if one.attribute == "leaseCounter")
    assert (counter.same, counter.other_value, counter.example) == (1, 1, ("N 3", "N 8"))


def test_rows_of_coordination_are_no_leases() -> None:
    rows = {
        "a": ROW,
        "Leader": {"entityType": {"S": "LEADER"}},
        "b": {"entityType": {"S": "LEASE"}},
    }
    assert leases_of(rows).keys() == {"a", "b"}


def test_the_state_of_a_row_does_not_depend_on_the_order_of_a_set() -> None:
    other = {**ROW, "childShardIds": {"SS": ["a", "b"]}, "leaseCounter": {"N": "7"}}
    assert state_of(ROW) == state_of(other) == ("49", "4", None, ["a", "b"])
