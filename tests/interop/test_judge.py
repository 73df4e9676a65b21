"""The judgement of scenarios is right; the servers themselves need `make interop-emulators`."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.interop.judge import (
    UnequalReplayError,
    Verdict,
    deliveries_of,
    deliveries_of_batches,
    judge,
)
from tests.interop.servers import DYNAMODB_LOCAL, MissingToolError, require_tools

PUT = {"a": 3, "b": 1}


def given(at: float, reader: str, *records: tuple[str, int], shard: str = "s") -> dict[str, Any]:
    return {"at": at, "reader": reader, "shard": shard, "records": list(records)}


def checkpoint(at: float, reader: str, shard: str = "s") -> dict[str, Any]:
    return {"at": at, "reader": reader, "shard": shard}


@pytest.mark.parametrize(
    ("first", "then", "verdict"),
    [
        ([0, 1], [("a", 2), ("b", 0)], Verdict(4, 4, 0, 0, 0, 0)),
        ([0, 2], [], Verdict(4, 2, 2, 0, 0, 0)),
        ([0, 2], [("a", 1), ("b", 0)], Verdict(4, 4, 0, 1, 0, 0)),
    ],
    ids=["good", "lost", "out of order"],
)
def test_all_are_to_be_given_in_order(
    first: list[int], then: list[tuple[str, int]], verdict: Verdict
) -> None:
    lines = [given(2, "w", *then), given(1, "v", *(("a", number) for number in first))]
    assert judge(PUT, deliveries_of(lines), killed=()) == verdict
    assert verdict.is_good == (verdict.lost == verdict.out_of_order == 0)


@pytest.mark.parametrize(
    ("killed", "kept_at", "shard", "explained"),
    [
        ({"v"}, None, "s", 2),
        ({"v"}, 1.5, "s", 0),
        ({"v"}, 1.5, "another", 2),
        (set(), None, "s", 0),
    ],
)
def test_a_repeat_is_explained_by_a_kill_ahead_of_a_checkpoint(
    killed: set[str], kept_at: float | None, shard: str, explained: int
) -> None:
    lines = [given(1, "v", ("a", 0), ("a", 1))]
    if kept_at is not None:
        lines.append(checkpoint(kept_at, "v", shard))
    lines.append(given(2, "w", ("a", 0), ("a", 1), ("a", 2), ("b", 0)))
    verdict = judge(PUT, deliveries_of(lines), killed)
    assert (verdict.repeated, verdict.explained) == (2, explained)
    assert verdict.is_good == (explained == 2)


@pytest.mark.parametrize("what", ["lost", "from", "asked"])
def test_only_a_checkpoint_covers_what_was_given(what: str) -> None:
    told = {"at": 1.5, "reader": "v", "shard": "s", what: True}
    lines = [given(1, "v", ("a", 0)), told, given(2, "w", ("a", 0))]
    assert judge({"a": 1}, deliveries_of(lines), {"v"}).explained == 1


def test_of_tries_of_one_batch_one_is_kept_if_they_are_equal() -> None:
    rows = [("a", 0), ("a", 1)]
    tries = [(1, "q2", [("a", 2), ("b", 0)]), (0, "q1", rows), (0, "q2", rows)]
    assert judge(PUT, deliveries_of_batches(tries), killed=("q1",)) == Verdict(4, 4, 0, 0, 0, 0)
    with pytest.raises(UnequalReplayError, match="batch 0"):
        deliveries_of_batches([*tries, (0, "q2", rows[:1])])


def test_a_machine_without_the_programs_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name in {"node", "mvn"} else name)
    with pytest.raises(MissingToolError, match=r"node cannot be found, and Node\.js"):
        require_tools([])
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "mvn" else name)
    require_tools([])
    with pytest.raises(MissingToolError, match="mvn cannot be found, and Java"):
        require_tools([DYNAMODB_LOCAL])
