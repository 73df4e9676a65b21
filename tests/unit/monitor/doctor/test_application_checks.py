"""What a worker's own state means to the doctor."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.monitor.doctor.application_checks import worker_findings
from sparkinesis.monitor.doctor.judge import Finding, State

WELL: dict[str, Any] = {
    "application": "app",
    "worker": "w",
    "not_live": [],
    "not_ready": [],
    "shards": [{"lease": "s0", "standing_for": None, "standing_because": ""}],
    "stopped_shards": {},
    "failures": [],
}
STILL = {"lease": "s1", "standing_for": 60.0, "standing_because": "process_records has not"}
SHORT = {**STILL, "standing_for": 59.0}
LOST = {
    "error": "DataLossError: All is lost.",
    "what": "Records expired before they were read, on s1",
    "count": 2,
    "shard_ids": ["s1"],
}
FAILED = {**LOST, "error": "ValueError: no", "what": "process_records raised"}


def found(**state: Any) -> list[Finding]:
    return list(worker_findings("worker w:1", "app", {**WELL, **state}))


def test_a_worker_that_goes_on() -> None:
    for shards in (WELL["shards"], [SHORT]):
        (one,) = found(shards=shards)
        assert (one.state, one.what) == (State.OK, "w reads 1 shard, and none stands still")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"shards": [SHORT, STILL]}, "s1 stands still for 60 s: process_records has not"),
        ({"failures": [LOST]}, "lost unread on s1, 2 times; the last: All is lost."),
        ({"not_live": ["a loop"]}, "it is not live: a loop"),
        ({"not_ready": ["no table"]}, "it is not ready: no table"),
        ({"stopped_shards": {"s2": "ValueError: no"}}, "on_error has stopped s2: ValueError: no"),
        ({"application": "other"}, "it is a worker of 'other'"),
    ],
)
def test_a_problem_of_a_worker(state: dict[str, Any], words: str) -> None:
    (one,) = found(**state)
    assert one.state is State.PROBLEM
    assert words in one.what
    assert one.mend


def test_failures_are_worth_a_note_beside_what_else_is_found() -> None:
    well, failures = found(failures=[LOST | {"error": "KeyError: x"}, FAILED])
    assert (well.state, failures.state) == (State.OK, State.NOTE)
    assert "different failures: 2" in failures.what
    assert "process_records raised: ValueError: no" in failures.what


@pytest.mark.parametrize("answer", [None, [], "ok", {"application": "app"}])
def test_an_answer_of_something_else(answer: object) -> None:
    (one,) = worker_findings("worker w:1", "app", answer)
    assert one.state is State.PROBLEM
    assert "not a worker's" in one.what
