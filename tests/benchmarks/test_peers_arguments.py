from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.peers.arguments import ALL, parsed
from benchmarks.peers.competitors import PEERS, unusable


def test_without_arguments_all_is_measured_in_five_rounds() -> None:
    found = parsed([])
    assert found.cases == ALL == ("backlog", "start", "steady"), "costs repeats parts of these"
    assert (found.peers, found.rounds) == (PEERS, 5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--only speed", "There is no case speed; there are: backlog"),
        ("--peers kcl-rs,gokini", "There is no peer gokini; there are: kcl-rs"),
        ("--rounds 0", "--rounds is 0; at least 1 is needed."),
        ("--scale 2", "--scale is 2; it must be above 0, and at most 1."),
    ],
)
def test_a_wrong_argument_is_explained(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(arguments.split())
    assert says in capsys.readouterr().err


def test_whoever_cannot_run_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    (kcl_rs,) = [each for each in PEERS if each.name == "kcl-rs"]
    assert unusable(kcl_rs, (3, 10)) == (
        "kcl-rs is left out: it needs Python 3.11, and this is 3.10."
    )
    assert unusable(kcl_rs, (3, 11)) is None
    monkeypatch.setenv("PATH", "")
    assert unusable(replace(kcl_rs, needs_java=True), (3, 11)) == (
        "kcl-rs is left out: it needs Java, and there is no command java."
    )
