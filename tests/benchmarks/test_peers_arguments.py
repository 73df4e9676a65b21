from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.arguments import parsed
from benchmarks.peers.competitors import PEERS, unusable


def test_arguments_choose() -> None:
    chosen = ["--only", "backlog", "--peers", "boto3,kcl-rs", "--also", "2ed4a4b"]
    found = parsed([*chosen, "--rounds", "3", "--json", "x.json"])
    assert found.cases == ("backlog",)
    assert [each.name for each in found.peers] == ["boto3", "kcl-rs", "sparkinesis 2ed4a4b"]
    assert found.peers[2].revision == "2ed4a4b"
    assert (found.rounds, found.json) == (3, Path("x.json"))


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
