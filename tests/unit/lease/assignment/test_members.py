"""What a leader reads of its workers' measurements."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from sparkinesis.lease.assignment.members import (
    WorkerLoad,
    average,
    by_throughput,
    member,
    releasing_workers,
    silent_workers,
    unproven_workers,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from tests.unit.lease.assignment.fleets import fleet, workers

AVERAGES: list[tuple[list[float], float | None]] = [
    ([], None),
    ([40], 40),
    ([40, 20], 30),
    ([40, 20, 10], 20),
    ([-1, 40, -1, 20], 30),
    ([-1, -1], None),
    ([math.nan, 40, math.inf], 40),
    ([0, 40], 20),
]


@pytest.mark.parametrize(("samples", "found"), AVERAGES)
def test_samples_are_averaged_by_halves(samples: list[float], found: float | None) -> None:
    assert average(samples) == found


def test_a_member_is_failing_if_its_last_sample_of_any_metric_is_missing() -> None:
    limit = {"C": 80.0, "M": 90.0}
    one = member("w", {"C": [40, -1], "M": [50, 70]}, limit)
    assert one == WorkerLoad("w", {"C": 40, "M": 60}, limit, is_failing=True)
    assert not member("w", {"C": [-1, 40], "M": []}, limit).is_failing
    assert member("w", {"C": [-1, 40], "M": []}, limit).load == {"C": 40}
    assert member("w", {"C": [-1]}, limit) == WorkerLoad("w", {}, limit, is_failing=True)


def test_a_worker_without_metrics_is_measured_by_its_throughput() -> None:
    found = by_throughput(
        [*workers("a", "b"), WorkerLoad("c", {"C": 70.0}, {"C": 90.0})], {"a": 30, "b": 0, "c": 60}
    )
    assert [one.load for one in found] == [{"T": 100.0}, {"T": 0.0}, {"C": 70.0}]
    assert [one.limit for one in found] == [{"T": 100.0}, {"T": 100.0}, {"C": 90.0}]


def test_no_throughput_at_all_is_0_and_not_nan() -> None:
    assert [one.load for one in by_throughput(workers("a", "b"), {})] == [{"T": 0.0}, {"T": 0.0}]


def test_a_worker_whose_leases_have_all_lapsed_is_silent_until_it_reports_again() -> None:
    rows = fleet(a=[1, 1], b=[1, 1])
    reported = {"a": 10.0, "b": 12.0}
    assert silent_workers({}, reported, rows, ["a0"], ["a", "b"]) == {}
    silent = silent_workers({}, reported, rows, ["a0", "a1", "b0"], ["b"])
    assert silent == {"a": 10.0}
    given = [replace(row, owner="b") for row in rows]
    assert silent_workers(silent, reported, given, [], ["b"]) == {"a": 10.0}
    assert silent_workers(silent, reported | {"a": 40.0}, given, [], ["b"]) == {}
    assert silent_workers(silent, {"b": 12.0}, given, [], ["b"]) == {}
    assert silent_workers(silent, reported, rows, [], ["a", "b"]) == {}


def test_a_lease_that_was_given_to_a_dead_worker_does_not_make_it_alive() -> None:
    rows = fleet(a=[1, 1])
    assert silent_workers({}, {"a": 10.0}, rows, ["a0"], renewing=[]) == {"a": 10.0}


def test_a_worker_that_releases_a_lease_to_nobody_is_about_to_end() -> None:
    start = ExtendedSequenceNumber("1")
    rows = [
        Lease("released", "s-1", start),
        Lease("finished", "s-2", ExtendedSequenceNumber("SHARD_END")),
        Lease("handed over", "s-3", start, owner="new"),
        Lease("never owned", "s-4", start),
        Lease("child", "s-5", start),
    ]
    owners = {"released": "a", "finished": "b", "handed over": "c", "never owned": None}
    assert releasing_workers(owners, rows) == {"a"}


def test_a_new_leader_waits_for_workers_without_leases_to_report() -> None:
    start = ExtendedSequenceNumber("1")
    rows = [
        Lease("x", "s-1", start, owner="owner"),
        Lease("y", "s-2", start, owner="next", checkpoint_owner="reader"),
    ]
    reported = {"owner": 1.0, "reader": 1.0, "next": 1.0, "dead": 89.0, "joined": 90.0}
    assert unproven_workers(reported, rows, 90.0) == {"next": 1.0, "dead": 89.0}
