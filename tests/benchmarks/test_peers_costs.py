"""The short comparison of small costs, with sparkinesis alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import costs, environments, steady
from benchmarks.peers.competitors import PEERS, SPARKINESIS, before
from benchmarks.peers.environments import ROOT, checked_out
from benchmarks.peers.records import Backlog

PYTHON = Path(sys.executable)
QUIET = print


@pytest.mark.long
def test_memory_by_fan_out_is_that_before_and_with_a_backlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(costs, "SHARDS", 2)
    monkeypatch.setattr(costs, "WORK", Backlog(2, 20_000, 1000))
    monkeypatch.setattr(steady, "SETTLE", 0.2)
    (boto3,) = [each for each in PEERS if each.name == "boto3"]
    pythons = {SPARKINESIS: PYTHON, boto3: PYTHON}  # which has no fan-out
    found = list(costs._fan_out(pythons, 1, 0.1, QUIET))
    assert {each.competitor for each in found} == {SPARKINESIS.name}
    cpu, idle, at_work = found
    assert (cpu.measure, idle.measure) == ("CPU until all are read", "memory, idle")
    assert (at_work.measure, at_work.lost) == ("memory, at work", 0)
    assert 0.1 < cpu.value < 60
    assert 20 < idle.value < at_work.value < 1000


@pytest.mark.long
def test_plans_are_those_of_the_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "PLANNED_SHARDS", 3)
    monkeypatch.setattr(costs, "PLANS", 2)
    found = list(costs._plans({SPARKINESIS: PYTHON, PEERS[0]: PYTHON}, 1, QUIET))
    assert [(each.competitor, each.measure) for each in found] == [
        (SPARKINESIS.name, "CPU of the first plan"),
        (SPARKINESIS.name, "CPU of a plan"),
    ]
    assert found[0].value > found[1].value > 0


def test_a_revision_is_checked_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert checked_out(SPARKINESIS) == ROOT
    git = ["git", "-C", str(ROOT), "show", "HEAD:pyproject.toml"]
    there = subprocess.run(git, capture_output=True, text=True, check=False)
    if there.returncode:
        pytest.skip("this is no checkout of git")
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    source = checked_out(before("HEAD"))
    assert source.is_relative_to(tmp_path)
    assert (source / "pyproject.toml").read_text() == there.stdout
    (source / "pyproject.toml").write_text("kept")
    assert checked_out(before("HEAD")) == source
    assert (source / "pyproject.toml").read_text() == "kept", "it is not checked out again"
    with pytest.raises(environments.LeftOutError, match="no-such-revision"):
        checked_out(before("no-such-revision"))
