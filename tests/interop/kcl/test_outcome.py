"""What `make interop` concludes, and what it says on a machine without its tools."""

from __future__ import annotations

import pytest

from tests.interop.judge import Verdict
from tests.interop.kcl.java import is_new_enough, require_java
from tests.interop.kcl.scenarios import Outcome, checkpoints_of
from tests.interop.kcl.tenures import Place
from tests.interop.servers import MissingToolError

GOOD = Verdict(put=4, read=4, lost=0, out_of_order=0, repeated=0, explained=0)
REPEATED = Verdict(put=4, read=4, lost=0, out_of_order=0, repeated=1, explained=0)


def test_repeats_are_fine_only_where_workers_were_killed() -> None:
    assert Outcome(GOOD, []).is_good
    assert not Outcome(REPEATED, []).is_good
    assert Outcome(REPEATED, [], may_repeat=True).is_good


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(GOOD, ["w1 began ..."], may_repeat=True),
        Outcome(Verdict(4, 3, 1, 0, 0, 0), [], may_repeat=True),
        Outcome(Verdict(4, 4, 0, 1, 0, 0), [], may_repeat=True),
    ],
)
def test_problems_losses_and_disorder_are_never_fine(outcome: Outcome) -> None:
    assert not outcome.is_good


def test_checkpoints_are_told_apart_by_stream() -> None:
    row = {"checkpoint": {"S": "7"}, "checkpointSubSequenceNumber": {"N": "3"}}
    rows = {"1:web:2:s-0": row, "1:tv:2:s-0": row, "Leader": {"entityType": {"S": "LEADER"}}}
    assert checkpoints_of(rows) == {("web", Place("7", 3)), ("tv", Place("7", 3))}


def test_a_machine_without_a_jdk_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "javac" else name)
    with pytest.raises(MissingToolError, match=r"^javac cannot be found, and .* JDK .*Maven"):
        require_java()


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [("javac 17.0.15", True), ("javac 21", True), ("javac 1.8.0_402", False), ("", False)],
)
def test_an_old_jdk_is_not_enough(version: str, is_enough: bool) -> None:
    assert is_new_enough(version) == is_enough
