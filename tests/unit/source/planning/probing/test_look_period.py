"""Looks are frequent while records arrive and nothing is throttled, unless the user chose."""

from __future__ import annotations

from sparkinesis.source.planning.probing.look_period import (
    BUSY,
    BUSY_FOR,
    IDLE,
    MOST_SHARDS,
    THROTTLED_FOR,
    LookPeriod,
)


def test_records_make_looks_more_frequent_for_a_while() -> None:
    period = LookPeriod(None)
    assert period.seconds(100.0, 0) == IDLE
    period.note_rows(100.0, 4)
    assert period.seconds(100.0 + BUSY_FOR, 0) == BUSY
    assert period.seconds(100.1 + BUSY_FOR, 0) == IDLE


def test_looks_at_many_shards_are_not_frequent() -> None:
    period = LookPeriod(None)
    period.note_rows(100.0, MOST_SHARDS + 1)
    assert period.seconds(100.0, 0) == IDLE
    period.note_rows(100.0, MOST_SHARDS)
    assert period.seconds(100.0, 0) == BUSY


def test_looks_of_a_throttled_stream_are_rare_until_nothing_is_throttled_for_a_minute() -> None:
    period = LookPeriod(None)
    period.note_rows(100.0, 4)
    assert period.seconds(100.0, 1) == IDLE
    period.note_rows(100.0 + THROTTLED_FOR, 4)
    assert period.seconds(100.0 + THROTTLED_FOR, 1) == IDLE
    assert period.seconds(100.1 + THROTTLED_FOR, 1) == BUSY
    assert period.seconds(100.2 + THROTTLED_FOR, 2) == IDLE


def test_the_users_choice_stands() -> None:
    period = LookPeriod(2.5)
    assert period.idle == period.seconds(0.0, 0) == 2.5
    period.note_rows(0.0, 4)
    assert period.seconds(0.0, 1) == 2.5


def test_two_queries_may_look_at_a_shard_that_accepts_five_calls_a_second() -> None:
    assert 2 / BUSY <= 5
