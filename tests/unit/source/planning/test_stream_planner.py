"""Probes are frequent while records arrive; what a plan has in hand travels with its tasks."""

from __future__ import annotations

from sparkinesis.source.planning.batch_end import NoRows, Records
from sparkinesis.source.planning.probing.end_in_shard import EndInShard
from sparkinesis.source.planning.stream_planner import (
    BUSY,
    BUSY_FOR,
    IDLE,
    MAX_CARRIED,
    MOST_SHARDS,
    THROTTLED_FOR,
    ProbePeriod,
    carried_records,
)
from tests.planners import records


def test_records_make_probes_more_frequent_for_a_while() -> None:
    period = ProbePeriod(None)
    assert period.seconds(100.0, 0) == IDLE
    period.rows_arrived(100.0, 4)
    assert period.seconds(100.0 + BUSY_FOR, 0) == BUSY
    assert period.seconds(100.1 + BUSY_FOR, 0) == IDLE


def test_probes_of_many_shards_are_not_frequent() -> None:
    period = ProbePeriod(None)
    period.rows_arrived(100.0, MOST_SHARDS + 1)
    assert period.seconds(100.0, 0) == IDLE
    period.rows_arrived(100.0, MOST_SHARDS)
    assert period.seconds(100.0, 0) == BUSY


def test_probes_of_a_throttled_stream_are_rare_until_nothing_is_throttled_for_a_minute() -> None:
    period = ProbePeriod(None)
    period.rows_arrived(100.0, 4)
    assert period.seconds(100.0, 1) == IDLE
    period.rows_arrived(100.0 + THROTTLED_FOR, 4)
    assert period.seconds(100.0 + THROTTLED_FOR, 1) == IDLE
    assert period.seconds(100.1 + THROTTLED_FOR, 1) == BUSY
    assert period.seconds(100.2 + THROTTLED_FOR, 2) == IDLE


def test_the_users_choice_stands() -> None:
    period = ProbePeriod(2.5)
    assert period.idle == period.seconds(0.0, 0) == 2.5
    period.rows_arrived(0.0, 4)
    assert period.seconds(0.0, 1) == 2.5


def test_two_queries_may_probe_a_shard_that_accepts_five_calls_a_second() -> None:
    assert 2 / BUSY <= 5


def test_all_records_of_a_shard_are_handed_over_or_none() -> None:
    half = MAX_CARRIED // 2
    ends = {
        "empty": EndInShard(NoRows()),
        "a": EndInShard(Records("1"), kept=records(half - 1, 1)),
        "large": EndInShard(Records("9")),
        "b": EndInShard(Records("0"), kept=records(half)),
        "c": EndInShard(Records("0"), kept=records(1)),
    }
    found = carried_records(ends)
    assert {shard: len(carried) for shard, carried in found.items()} == {"a": 2, "b": 1}
