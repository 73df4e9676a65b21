"""What `make interop` concludes of its workers, and what it says on a machine without its tools."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.judge import Verdict
from tests.interop.kcl.java import is_new_enough, require_java
from tests.interop.kcl.outcome import Outcome
from tests.interop.kcl.repeats import repeats
from tests.interop.kcl.rows import row_problems
from tests.interop.kcl.tenures import Place, problems_of
from tests.interop.kcl.upgrade import disputes
from tests.interop.servers import MissingToolError

GOOD = Verdict(put=4, read=4, lost=0, out_of_order=0, repeated=0, explained=0)
REPEATED = Verdict(put=4, read=4, lost=0, out_of_order=0, repeated=1, explained=0)


@pytest.mark.parametrize(
    ("outcome", "is_good"),
    [
        (Outcome(GOOD, []), True),
        (Outcome(REPEATED, []), False),
        (Outcome(REPEATED, [], may_repeat=True), True),
        (Outcome(GOOD, ["w1 began ..."], may_repeat=True), False),
        (Outcome(Verdict(4, 3, 1, 0, 0, 0), [], may_repeat=True), False),
        (Outcome(Verdict(4, 4, 0, 1, 0, 0), [], may_repeat=True), False),
    ],
)
def test_only_repeats_after_a_kill_are_fine(outcome: Outcome, is_good: bool) -> None:
    assert outcome.is_good == is_good


def test_a_machine_without_a_new_jdk_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "javac" else name)
    with pytest.raises(MissingToolError, match=r"^javac cannot be found, and .* JDK .*Maven"):
        require_java()
    versions = ("javac 17.0.15", "javac 21", "javac 1.8.0_402", "")
    assert [is_new_enough(version) for version in versions] == [True, True, False, False]


def line(at: float, who: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "reader": who, "shard": "s", **more}


def given(at: float, who: str, *numbers: int) -> dict[str, Any]:
    return line(at, who, records=[("k", number) for number in numbers])


BEGIN = [line(0, "w1", **{"from": []}), given(1, "w1", 1, 2)]


def test_nothing_that_comes_once_is_told() -> None:
    assert not repeats([*BEGIN, line(2, "j1", **{"from": []}), given(3, "j1", 3)], set())


def test_a_killed_reader() -> None:
    told = repeats([*BEGIN, line(2, "j1", **{"from": []}), given(3, "j1", 2, 3)], {"w1"})
    assert told == {"ours was killed before its checkpoint; Java went on": 1}


def test_a_lease_that_was_taken_or_handed_over() -> None:
    after = [line(2, "j1", **{"from": []}), given(3, "j1", 1, 2)]
    assert repeats([*BEGIN, *after], set()) == {
        "Java took the lease from ours without a request": 2
    }
    asked = [line(1.5, "w1", asked=True)]
    assert repeats([*BEGIN, *asked, *after], set()) == {
        "ours handed over to Java, and had not checkpointed all": 2
    }


def test_a_reader_that_does_not_know_yet_that_its_lease_is_lost() -> None:
    late = [line(1.5, "j1", **{"from": []}), given(2, "w1", 3), given(3, "j1", 3)]
    assert repeats([*BEGIN, *late], set()) == {
        "ours was given it when Java had begun: it had not noticed its loss": 1
    }


PLACES = {("a", 0): Place("7", 0), ("a", 1): Place("7", 1), ("a", 2): Place("9", 0)}


def placed(at: float, reader: str, *numbers: int) -> dict[str, Any]:
    places = [PLACES["a", number] for number in numbers]
    return line(
        at,
        reader,
        records=[["a", number] for number in numbers],
        places=[[one.sequence_number, one.sub_sequence_number] for one in places],
    )


def start(at: float, reader: str, sequence_number: str, sub: int = 0) -> dict[str, Any]:
    return line(at, reader, **{"from": [sequence_number, sub]})


FIRST = [start(1, "v", "TRIM_HORIZON"), placed(2, "v", 0, 1), line(3, "v", checkpoint=["7", 0])]


def test_a_reader_that_begins_inside_an_aggregate_is_fine() -> None:
    lines = [placed(5, "w", 1, 2), start(4, "w", "7", 0), *FIRST]
    assert problems_of(lines, PLACES) == []
    places = {**PLACES, ("a", 1): Place("7", 2)}
    assert problems_of(FIRST, places) == ["v was given a 1 at another place"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([start(4, "w", "TRIM_HORIZON"), placed(5, "w", 0)], "w began s at .* ahead of v's check"),
        ([start(4, "w", "7", 0), placed(5, "w", 0, 1)], "w was given a 0"),
        # A checkpoint that comes late does not hide a later one.
        (
            [
                line(3.5, "w", checkpoint=["9", 0]),
                line(3.6, "v", checkpoint=["7", 1]),
                start(4, "u", "7", 1),
            ],
            ".*ahead of w's checkpoint",
        ),
        ([line(4, "v", checkpoint=["SHARD_END", 0]), start(5, "w", "9", 0)], ".*SHARD_END"),
    ],
)
def test_what_no_reader_may_do_is_found(more: list[dict[str, Any]], says: str) -> None:
    (problem,) = problems_of([*FIRST, *more], PLACES)
    assert re.match(says, problem)


def lines(*told: tuple[float, str, str]) -> list[dict[str, Any]]:
    return [{"at": at, "reader": who, "shard": "s", what: []} for at, who, what in told]


def test_a_shard_that_is_handed_over_is_in_no_dispute() -> None:
    told = lines((1, "a", "from"), (2, "a", "records"), (3, "b", "from"), (4, "b", "records"))
    assert disputes(told) == {}
    again = lines((5, "a", "from"), (6, "a", "records"))
    assert disputes(told + again) == {}


def test_a_reader_that_was_late_counts_until_its_last_records() -> None:
    told = lines((1, "a", "from"), (2, "a", "records"), (3, "b", "from"), (4, "a", "records"))
    assert disputes(told) == {}, "the new one has been given nothing yet"
    both = lines(
        (4.5, "b", "records"), (5, "a", "records"), (6, "b", "records"), (6.5, "a", "records")
    )
    assert disputes(told + both) == {"s": 2.0}


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
