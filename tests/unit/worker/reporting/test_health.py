"""The health of a worker: its scans of the lease table, and slow calls."""

from __future__ import annotations

import pytest

from sparkinesis.errors import AccessDeniedError, LeaseTableUnavailableError
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.worker.reporting.health import TableScans, slow_calls

BUSY = LeaseTableUnavailableError("throttled")
UNSEEN = "the worker has not seen the whole lease table yet"
AGO = "the last complete scan of the lease table was 31 s ago"


@pytest.mark.parametrize(
    ("is_seen", "error", "seconds", "problem"),
    [
        (False, None, 0.0, UNSEEN),
        (False, BUSY, 0.0, f"{UNSEEN}: LeaseTableUnavailableError: throttled"),
        (True, None, 0.0, None),
        (True, None, 30.0, None),
        (True, None, 31.0, AGO),
        (True, BUSY, 30.0, None),
        (True, BUSY, 31.0, f"{AGO}: LeaseTableUnavailableError: throttled"),
    ],
)
def test_a_worker_sees_its_table_for_three_failover_times(
    is_seen: bool, error: Exception | None, seconds: float, problem: str | None
) -> None:
    now = [100.0]
    scans = TableScans(lambda: now[0], 10.0)
    if is_seen:
        scans.note()
    if error is not None:
        scans.note_failure(error)
    now[0] += seconds
    assert scans.problem() == problem


def test_a_short_failover_time_makes_no_short_patience() -> None:
    now = [100.0]
    scans = TableScans(lambda: now[0], 0.1)
    scans.note()
    now[0] = 109.9
    assert scans.problem() is None
    now[0] = 110.1
    assert scans.problem() is not None


def test_an_outage_ends_readiness_late_and_a_refusal_at_once() -> None:
    scans = TableScans(lambda: 100.0, 10.0)
    scans.note()
    scans.note_failure(LeaseTableUnavailableError("throttled"))
    assert scans.problem() is None
    scans.note_failure(AccessDeniedError("no"))
    assert scans.problem() == "the last scan of the lease table failed: AccessDeniedError: no"
    scans.note()
    assert scans.problem() is None


def test_the_table_is_unseen_since_the_last_scan_or_the_start() -> None:
    now = [100.0]
    scans = TableScans(lambda: now[0], 10.0)
    now[0] = 103.0
    assert scans.unseen_for == 3.0
    scans.note()
    now[0] = 110.0
    scans.note_failure(LeaseTableUnavailableError("throttled"))
    assert scans.unseen_for == 7.0
    scans.note()
    assert scans.unseen_for == 0.0


def test_a_call_is_too_slow_beyond_the_limit_and_not_without_one() -> None:
    def shard(seconds: float | None) -> ShardStatus:
        return ShardStatus("s", ShardState.PROCESSING, 0, seconds, lease="s")

    shards = [shard(None), shard(30.0), shard(31.0)]
    (why,) = slow_calls(shards, 30.0)
    assert why == "process_records has taken 31 s on s; processing_time_limit is 30 s"
    assert slow_calls(shards, None) == []
