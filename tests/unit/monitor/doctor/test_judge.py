"""What facts mean for an application."""

from __future__ import annotations

import time

import pytest

from sparkinesis.errors import StreamNotFoundError
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.judge import State, problem_of
from sparkinesis.monitor.doctor.service import _summary, clock_ahead


@pytest.mark.parametrize(
    ("ahead", "state", "words"),
    [
        (0.0, State.OK, "agrees"),
        (-4.9, State.OK, "agrees"),
        (5.5, State.NOTE, "6 s ahead of"),
        (-239, State.NOTE, "239 s behind"),
        (-240, State.PROBLEM, "240 s behind"),
        (3600, State.PROBLEM, "3,600 s ahead of"),
    ],
)
def test_a_clock_may_differ_a_little(ahead: float, state: State, words: str) -> None:
    found = judge.clock(ahead)
    assert (found.state, words in found.what) == (state, True)
    assert (found.mend == "") == (state is State.OK)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Tue, 14 Nov 2023 22:13:20 GMT", 9.5),
        ("Tue, 14 Nov 2023 22:13:40 GMT", -10.5),
        ("Tue, 14 Nov 2023 22:13:20 -0000", 9.5),
        ("Tue, 14 Nov 2023 23:13:20 +0100", 9.5),
        ("yesterday", None),
        (None, None),
    ],
)
def test_a_date_header_stands_for_the_middle_of_its_second(
    date: str | None, expected: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever this machine is: a header without a zone is in UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert clock_ahead(date, 1_700_000_010.0) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("pyspark", "java", "state", "words"),
    [
        (None, None, State.NOTE, "not installed"),
        ("4.1.9", 17, State.PROBLEM, "too old"),
        ("4.2.0.dev1", 17, State.OK, "Java 17"),
        ("4.10.0", 21, State.OK, "4.10.0"),
        ("4.3.0", None, State.NOTE, "no Java"),
        ("4.3.0", 11, State.PROBLEM, "Java 11"),
        ("4.3.0", 0, State.OK, "unknown"),
    ],
)
def test_spark_needs_its_versions(
    *, pyspark: str | None, java: int | None, state: State, words: str
) -> None:
    found = judge.spark(pyspark, java)
    assert (found.state, words in found.what) == (state, True)


@pytest.mark.parametrize(
    ("units", "leases", "state"),
    [
        (None, 10_000, State.OK),
        (10, 33, State.OK),
        (10, 34, State.PROBLEM),
    ],
)
def test_renewals_need_capacity(units: int | None, leases: int, state: State) -> None:
    assert judge.capacity(units, leases).state is state


def test_leases_of_no_shard_are_of_another_stream() -> None:
    assert judge.shards("s", ["a", "b"], ["b"]) is None
    assert judge.shards("s", ["a", "b"], ["b"], ["s", "t"]) is None
    some = judge.shards("s", ["a", "b"], ["b", "c"])
    assert some is not None
    assert (some.state, some.what) == (
        State.PROBLEM,
        "1 unfinished lease of 2, such as c, is of no shard of s",
    )
    none = judge.shards("s", ["a"], [], ["t", "u"])
    assert none is not None
    assert (none.state, none.what) == (State.NOTE, "the leases are of t, u, and none of s")
    assert judge.shards("s", ["a"], []) is None
    found = judge.shards("s", ["a"], ["b", "c"])
    assert found is not None
    assert "none of the 2 unfinished" in found.what


@pytest.mark.parametrize(
    ("used", "most", "state"),
    [(89, 100, State.OK), (90, 100, State.NOTE), (5, 0, State.OK)],
)
def test_a_limit_is_noted_before_it_is_reached(used: int, most: int, state: State) -> None:
    assert judge.limit("things", used, most).state is state


def test_the_number_of_shards_is_told_if_the_server_tells_it() -> None:
    summary = {"StreamStatus": "ACTIVE", "RetentionPeriodHours": 24}
    assert _summary("s", summary).what == "ACTIVE, ? open shards, keeps records for 24 h"


def test_a_consumer_needs_room() -> None:
    assert judge.consumers("c", 19).state is State.NOTE
    assert judge.consumers("c", 20).state is State.PROBLEM


def test_an_error_is_cut_where_its_advice_begins() -> None:
    found = problem_of("stream", StreamNotFoundError("There is no s v1.2. Check it. Or not."))
    assert (found.what, found.mend) == ("There is no s v1.2.", "Check it. Or not.")
    assert problem_of("stream", StreamNotFoundError("No advice.")).mend == ""


def lease(shard: str, owner: str | None = None, *stopped_by: str, at: str = "5") -> Lease:
    return Lease(
        shard, shard, ExtendedSequenceNumber(at), owner=owner, stopped_by=tuple(stopped_by)
    )


def test_a_table_without_leases_is_worth_a_note() -> None:
    (found,) = judge.leases("delays", [])
    assert (found.state, found.what) == (State.NOTE, "delays: 0 leases, 0 not finished, 0 owners")


def test_shards_that_are_stopped_everywhere_are_a_problem() -> None:
    rows = [
        lease("a", "me"),
        lease("b", "me", "another"),
        lease("c", None),
        lease("d", None, "another", at=SHARD_END),
    ]
    assert [one.state for one in judge.leases("delays", rows)] == [State.OK], "b is read elsewhere"
    rows += [lease(f"stopped-{number}", None, "me") for number in range(7)]
    table, stopped = judge.leases("delays", rows)
    assert (table.state, stopped.state) == (State.OK, State.PROBLEM)
    assert stopped.what.startswith("7 shards are stopped by on_error")
    assert stopped.what.endswith("stopped-4 and 2 more")
    assert "sparkinesis restart" in stopped.mend
