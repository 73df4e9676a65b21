"""Which leases may move, and in which order they are taken."""

from __future__ import annotations

import random

from msgspec.structs import replace

from sparkinesis.lease.assignment.moves import (
    lately,
    longest_vacant_first,
    movable_by_owner,
    pop_least,
    resting,
)
from tests.unit.lease.assignment.fleets import fleet


def test_a_lease_rests_during_a_handoff_and_for_a_minute_after_a_move() -> None:
    rows = fleet(a=[1, 1, 1, 1])
    rows[3] = replace(rows[3], checkpoint_owner="b")
    moved = lately({"a0": 40.1, "a1": 40.0}, 100.0, 10.0)
    assert resting(rows, moved) == {"a0", "a3"}
    assert resting(rows[:3], {}) == frozenset()


def test_the_longest_vacant_lease_comes_first() -> None:
    rows = fleet(a=[1, 1, 1], nobody=[1])
    vacant = {"a0": 7.0, "a2": 5.0, "nobody0": 0.0}
    assert [row.key for row in longest_vacant_first(rows, vacant)] == ["nobody0", "a2", "a0"]


def test_the_leases_of_an_owner_come_in_random_order_without_those_that_stay() -> None:
    rows = fleet(a=[1] * 20, b=[1], nobody=[1])
    orders = set()
    for seed in range(5):
        found = movable_by_owner(rows, {"a3", "b0"}, random.Random(seed))
        assert found.keys() == {"a"}
        assert len(found["a"]) == 19
        orders.add(tuple(row.key for row in found["a"]))
    assert len(orders) > 1


def test_a_lapsed_lease_goes_to_another_worker_if_there_is_one() -> None:
    a, b = (0.5, 1, 0.1, "a"), (0.7, 2, 0.2, "b")
    ranking = [a, b]
    assert pop_least(ranking, "a") == b
    assert pop_least(ranking, "a") == a
    assert ranking == []
