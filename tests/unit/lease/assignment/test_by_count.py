"""Even numbers of leases."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkinesis.lease.assignment.moves import AssignSettings
from sparkinesis.lease.assignment.worker_stats import WorkerLoad
from tests.unit.lease.assignment.fleets import after, fleet, moved, plan, workers

Counts = dict[str, int]
ABC = ("a", "b", "c")
CASES: list[tuple[str, Counts, dict[str, Any], list[int]]] = [
    ("new leases are shared", {"nobody": 9}, {}, [3, 3, 3]),
    ("shares are rounded down or up", {"nobody": 10}, {}, [3, 3, 4]),
    ("one each if there are no more", {"nobody": 2}, {}, [0, 1, 1]),
    ("vacant leases fill the gaps", {"a": 3, "b": 1, "nobody": 5}, {"balances": False}, [3, 3, 3]),
    ("a run that does not balance moves none", {"a": 9}, {"balances": False}, [0, 0, 9]),
    ("a run that balances makes all even", {"a": 9}, {}, [3, 3, 3]),
    ("the rest stays where it is", {"a": 4, "b": 3, "c": 3}, {}, [3, 3, 4]),
    ("leases that rest stay", {"a": 9}, {"resting": [f"a{n}" for n in range(7)]}, [1, 1, 7]),
    ("a lease of another worker counts for none", {"other": 6, "a": 2, "b": 1}, {}, [1, 1, 1]),
    ("nobody has more than the most", {"nobody": 9}, {"settings": AssignSettings(max_leases=2)},
     [2, 2, 2]),
    ("the most stops a balance, too", {"a": 6}, {"settings": AssignSettings(max_leases=1)},
     [1, 1, 4]),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "how", "result"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_counts(counts: Counts, how: dict[str, Any], result: list[int]) -> None:
    rows = fleet(**{who: [1.0] * count for who, count in counts.items()})
    moves = plan(rows, workers(*ABC), "count", **how)
    found = Counter(row.owner for row in after(rows, moves))
    assert sorted(found[who] for who in ABC) == result
    assert len(moved(moves)) == len(moves)
    assert not moved(moves).keys() & set(how.get("resting", ()))


def test_few_moves_make_a_fleet_even() -> None:
    rows = fleet(a=[1] * 5, b=[1] * 3, c=[1] * 1)
    assert set(moved(plan(rows, workers(*ABC), "count")).values()) == {"c"}
    assert len(plan(rows, workers(*ABC), "count")) == 2


def test_of_too_many_vacant_leases_the_longest_vacant_are_assigned() -> None:
    rows = fleet(dead=[1, 1, 1])
    vacant = {"dead0": 30.0, "dead1": 10.0, "dead2": 20.0}
    most = AssignSettings(max_leases=1)
    moves = plan(rows, workers("a", "b"), "count", vacant=vacant, settings=most)
    assert moved(moves).keys() == {"dead1", "dead2"}


def test_a_lapsed_lease_returns_to_its_owner_only_if_there_is_no_other() -> None:
    rows = fleet(a=[1], b=[1, 1])
    for names, to in (("ab", "b"), ("a", "a")):
        moves = plan(rows, workers(*names), "count", vacant={"a0": 1.0}, balances=False)
        assert moved(moves) == {"a0": to}


def test_a_vacant_lease_does_not_rest() -> None:
    rows = fleet(dead=[1])
    moves = plan(rows, workers("a"), "count", vacant={"dead0": 1.0}, resting=["dead0"])
    assert moved(moves) == {"dead0": "a"}


def test_a_worker_whose_metrics_fail_gets_its_share() -> None:
    rows = fleet(a=[1, 1])
    members = [WorkerLoad("a"), WorkerLoad("b", {"C": 99.0}, {"C": 50.0}, is_failing=True)]
    assert list(moved(plan(rows, members, "count")).values()) == ["b"]


def test_without_workers_nothing_is_planned() -> None:
    assert plan(fleet(nobody=[1]), [], "count") == ()
