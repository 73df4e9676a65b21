"""Why a record came twice, as `make interop` tells."""

from __future__ import annotations

from typing import Any

from tests.interop.kcl.repeats import repeats


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
