"""The stats of workers: Java's rows, which of them count, and what a leader reads of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.assignment.worker_stats import (
    CPU,
    WorkerLoad,
    WorkerStats,
    average,
    by_throughput,
    decode_stats,
    encode_stats,
    member,
    newest,
    releasing_workers,
    silent_workers,
    unproven_workers,
    with_sample,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from tests.kcl import COORDINATION, recorded
from tests.unit.lease.assignment.fleets import fleet, workers

NOW = 1_795_233_100
STATS = WorkerStats("w-1", NOW, {CPU: (12.5, 0.0, 99.123456)}, {CPU: 100}, 1, NOW)


def java_rows() -> list[tuple[str, dict[str, Any]]]:
    """The rows that real Java workers wrote, with the key of their table."""
    beside = recorded("kcl-3.1.3-tables.json")["japp-WorkerMetricStats"]["Items"]
    among = recorded("kcl-3.5.1-several-streams.json")["Items"]
    rows = [("wid", row) for row in beside]
    return rows + [
        ("leaseKey", row) for row in among if row["entityType"]["S"] == "WORKER_METRIC_STATS"
    ]


def test_rows_of_java_are_read() -> None:
    """These workers ran neither on EC2 nor in a container: they measured nothing."""
    found = [decode_stats(row, key) for key, row in java_rows()]
    assert found == [
        WorkerStats("09f1d43d-cf6f-46f5-9430-8a9fdcca9baa", 1795233097),
        WorkerStats("5c691e4d-b331-4a12-9a92-b0731aaa672b", 1795232872),
        WorkerStats("j1", 1795435038, {}, {}, 1, 1795435038),
    ]
    assert all(one and one.by_throughput and one.is_valid for one in found)


@pytest.mark.parametrize("number", [0, 2])
def test_our_row_of_the_same_worker_is_javas(number: int) -> None:
    """A KCL before 3.5 writes no entityType, and keeps that of a KCL 3.5 as we write it."""
    key, row = java_rows()[number]
    stats = decode_stats(row, key)
    assert stats is not None
    ours = {key: {"S": stats.worker_id}, **encode_stats(stats)}
    assert ours == {"entityType": {"S": "WORKER_METRIC_STATS"}, **row}


def test_a_row_holds_the_averages_and_the_limits() -> None:
    row = encode_stats(STATS)
    assert row["sts"] == {
        "M": {"C": {"L": [{"N": "12.500000"}, {"N": "0.000000"}, {"N": "99.123456"}]}}
    }
    assert row["opr"] == {"M": {"C": {"L": [{"N": "100"}]}}}
    for key in ("leaseKey", "wid"):
        assert decode_stats({key: {"S": "w-1"}, **row}, key) == STATS


@pytest.mark.parametrize(
    "change",
    [
        {"entityType": {"S": "LEADER"}},
        {"leaseKey": {"N": "1"}},
        {"lut": {"N": "x"}},
        {"lut": {"S": "1"}},
        {"sts": {"M": {"C": {"N": "1"}}}},
        {"sts": {"M": {"C": {"L": [{"S": "1"}]}}}},
        {"opr": {"M": {"C": {"L": [{"N": "x"}]}}}},
        {"opr": {"M": {"C": {"L": ["x"]}}}},
    ],
    ids=str,
)
def test_a_row_that_is_broken_or_another_one_is_skipped(change: dict[str, Any]) -> None:
    row = {"leaseKey": {"S": "w-1"}, **encode_stats(STATS)}
    assert decode_stats(row) is not None
    assert decode_stats({**row, **change}) is None


def test_among_leases_only_a_row_of_that_type_is_one() -> None:
    row = {"leaseKey": {"S": "w-1"}, **encode_stats(STATS)}
    del row["entityType"]
    assert decode_stats(row) is None
    assert [decode_stats(one) is not None for one in COORDINATION] == [False, False, True, False]


def test_what_a_newer_version_adds_is_left_out() -> None:
    row = {
        "leaseKey": {"S": "w-1"},
        **encode_stats(STATS),
        "properties": {"M": {}},
        "x": {"N": "1"},
    }
    assert decode_stats(row) == STATS


@pytest.mark.parametrize(
    ("stats", "is_valid"),
    [
        (STATS, True),
        (WorkerStats("w", NOW), True),
        (WorkerStats("w", 0), False),
        (replace(STATS, updated_s=0), False),
        (replace(STATS, limits={}), False),
        (replace(STATS, limits={"M": 100}), False),
        (replace(STATS, limits={CPU: 0}), False),
        (replace(STATS, limits={CPU: 90, "M": 0}), False),
        (replace(STATS, limits={CPU: 90, "M": 80}), True),
    ],
    ids=str,
)
def test_which_rows_a_leader_ignores(stats: WorkerStats, *, is_valid: bool) -> None:
    assert stats.is_valid is is_valid
    assert stats.is_alive(NOW) is is_valid


def test_a_limit_without_values_is_0() -> None:
    row = {"leaseKey": {"S": "w-1"}, **encode_stats(STATS), "opr": {"M": {"C": {"L": []}}}}
    found = decode_stats(row)
    assert found is not None
    assert not found.is_valid


def test_a_worker_is_active_for_two_intervals_and_its_row_stays_a_day() -> None:
    assert STATS.is_alive(NOW - 10), "its clock is ahead"
    assert STATS.is_alive(NOW + 60)
    assert not STATS.is_alive(NOW + 61)
    assert not STATS.is_stale(NOW + 86400)
    assert STATS.is_stale(NOW + 86401)


def test_a_worker_whose_last_measurement_failed_is_alive_and_failing() -> None:
    assert replace(STATS, samples={CPU: (-1.0, 5.0)}).is_alive(NOW)
    failing = replace(STATS, samples={CPU: (5.0, -1.0)})
    assert failing.is_valid
    assert failing.is_failing
    assert failing.is_alive(NOW)
    assert failing.is_failing
    assert replace(STATS, samples={CPU: ()}).is_alive(NOW)


def test_the_newest_of_two_rows_counts() -> None:
    old, other = replace(STATS, updated_s=NOW - 1, samples={}), replace(STATS, worker_id="w-2")
    for rows in ([old, STATS, other], [other, STATS, old]):
        assert newest(rows) == {"w-1": STATS, "w-2": other}


def test_a_sample_that_was_not_measured_has_failed() -> None:
    samples = with_sample({"M": (7.0,)}, CPU, 1 / 3)
    assert with_sample(samples, CPU, None) == {"M": (7.0,), CPU: (0.333333, -1.0)}


def test_ten_samples_are_kept() -> None:
    samples: dict[str, tuple[float, ...]] = {}
    for value in range(12):
        samples = with_sample(samples, CPU, float(value))
    assert samples[CPU] == tuple(map(float, range(2, 12)))


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
