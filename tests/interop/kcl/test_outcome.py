"""What `make interop` concludes, and what it says on a machine without its tools."""

from __future__ import annotations

import pytest

from tests.interop.judge import Verdict
from tests.interop.kcl.java import is_new_enough, require_java
from tests.interop.kcl.outcome import Outcome
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
