"""The stats of workers: Java's rows, which of them count, and the averages of a row."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.assignment.worker_stats import (
    CPU,
    WorkerStats,
    decode_stats,
    encode_stats,
    newest,
    with_sample,
)
from tests.kcl import COORDINATION, recorded

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
