"""The auditor, whom Java workers elect as a leader; the numbers are those of a JVM's Random."""

from __future__ import annotations

import pytest

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.auditor import auditor, java_numbers, java_order, java_shuffle


@pytest.mark.parametrize(
    ("seed", "bounds", "numbers"),
    [
        (42, [10] * 12, [0, 3, 8, 4, 0, 5, 5, 8, 9, 3, 2, 2]),
        (1947, [100] * 8, [63, 25, 95, 69, 2, 18, 61, 0]),
        (1947, [16] * 8, [10, 5, 0, 4, 7, 7, 11, 7]),
        (1947, [1, 2, 4, 1 << 30], [0, 0, 0, 276436584]),
        (-5, [7] * 8, [5, 6, 2, 6, 1, 5, 5, 5]),
        # Every second draw is rejected for this bound.
        (0, [(1 << 30) + 1] * 5, [516548029, 663681053, 251269761, 715581077, 542832677]),
    ],
)
def test_numbers_are_javas(seed: int, bounds: list[int], numbers: list[int]) -> None:
    assert list(java_numbers(seed, bounds)) == numbers


@pytest.mark.parametrize(
    ("count", "order"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [2, 0, 1]),
        (5, [4, 0, 2, 1, 3]),
        (8, [2, 3, 0, 6, 4, 7, 1, 5]),
        (13, [12, 2, 6, 8, 0, 4, 11, 3, 7, 9, 5, 1, 10]),
    ],
)
def test_shuffles_are_javas(count: int, order: list[int]) -> None:
    assert java_shuffle(range(count), 1947) == order


def test_java_sorts_by_utf_16_units() -> None:
    assert sorted(["\uff5e", "\U0001f600", "a"], key=java_order) == ["a", "\U0001f600", "\uff5e"]


def lease(key: str, owner: str | None, checkpoint: str = "5") -> Lease:
    return Lease(key, key, ExtendedSequenceNumber(checkpoint), owner=owner)


def test_the_leader_is_that_of_java_workers() -> None:
    leases = [lease(f"s{i}", f"w{i % 3:02d}") for i in reversed(range(9))]
    assert auditor(leases) == "w02"
    assert auditor([*leases, lease("t", "w03"), lease("u", "w04"), lease("v", None)]) == "w04"


def test_nobody_audits_by_a_lease_that_may_be_a_dead_workers() -> None:
    leases = [lease("s0", "w00"), lease("s1", "w01"), lease("s2", "w02", SHARD_END)]
    assert auditor([*leases, lease("s3", "w02")]) == "w02"
    assert auditor(leases) == "w00"
    assert auditor(leases, expired={"s0"}) == "w01"


def test_any_may_lead_where_nothing_is_owned() -> None:
    assert auditor([]) is None
    assert auditor([lease("s", None), lease("t", "w", SHARD_END)]) is None
