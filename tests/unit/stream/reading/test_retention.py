"""May records behind a position be gone? Decided by times alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.stream.reading.retention import (
    CLOCK_MARGIN_MS,
    HOUR_MS,
    RetentionCheck,
    has_lost,
    is_kept,
    is_of_another_stream,
)

NOW = 1_790_000_000_000
MINUTE = 60_000


def ago(hours: float) -> int:
    return NOW - round(hours * HOUR_MS)


def after(arrived: float | None, clear: float | None) -> AfterRecord:
    """A position whose record arrived so many hours ago, and nothing until so many hours ago."""
    return AfterRecord(
        "7",
        None if clear is None else ago(clear),
        arrived_ms=None if arrived is None else ago(arrived),
    )


@pytest.mark.parametrize(
    ("position", "hours", "is_lost"),
    [
        # Without the record's own arrival, as older versions store positions.
        (after(None, 30), 24, True),
        (after(None, 30), 72, False),
        (after(None, None), 72, True),
        # The record expired in the ordinary way: what came since is kept.
        (after(80, 30), 72, False),
        (after(30, 20), 24, False),
        (after(30, 25), 24, True),
        # 72 hours would keep the record. So the period was shorter, and may have been 24 hours.
        (after(40, 30), 72, True),
        (after(30, None), 72, True),
        (after(40, 20), 72, False),
        # No stream removes a record of twenty hours.
        (after(20, 1), 24, True),
        (after(20, 1), 72, True),
        (AtTimestamp(ago(30)), 24, True),
        (AtTimestamp(ago(30)), 72, False),
        (TRIM_HORIZON, 24, False),
    ],
)
def test_where_a_positions_record_is_gone(position: Position, hours: int, is_lost: bool) -> None:
    assert has_lost(position, NOW, hours * HOUR_MS) is is_lost


def test_a_record_that_is_just_about_to_expire_may_be_gone_by_another_clock() -> None:
    assert not is_kept(after(24, 24), NOW, 24 * HOUR_MS)
    at_margin = NOW - 24 * HOUR_MS + CLOCK_MARGIN_MS
    assert not is_kept(AfterRecord("7", arrived_ms=at_margin - 1), NOW, 24 * HOUR_MS)
    assert is_kept(AfterRecord("7", arrived_ms=at_margin), NOW, 24 * HOUR_MS)


@given(
    st.integers(0, 200),
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([24, 48, 72, 168])), max_size=6),
    st.sampled_from([24, 48, 72, 168]),
)
def test_what_any_life_of_the_retention_period_removed_is_told(
    arrived: int, clear: int, changes: list[tuple[int, int]], hours: int
) -> None:
    """Unless the record of the position would have expired by the present period as well.

    ``changes``: so many hours ago the period was so long, for a moment.
    """
    horizon = min([hours, *(ago_ + period for ago_, period in changes)])
    position = after(arrived, min(clear, arrived))
    if arrived <= horizon:
        return  # the record is there
    is_lost = min(clear, arrived) > horizon
    tells = has_lost(position, NOW, hours * HOUR_MS)
    if is_lost and arrived < hours:
        assert tells
    if tells:
        assert min(clear, arrived) > 24 or arrived < 24, "nothing younger is ever removed"


@pytest.mark.parametrize(
    ("position", "is_older"),
    [
        (AtTimestamp(NOW - 3 * MINUTE), True),
        (AtTimestamp(NOW - MINUTE), False),
        (AtTimestamp(NOW + MINUTE), False),
        (AfterRecord("7", clear_until=NOW - 3 * MINUTE), True),
        (AfterRecord("7", clear_until=NOW - 3 * MINUTE, arrived_ms=NOW + 1), False),
        (AfterRecord("7", clear_until=NOW + MINUTE, arrived_ms=NOW - 9 * MINUTE), False),
        (AfterRecord("7"), False),
        (TRIM_HORIZON, False),
        (LATEST, False),
        (SHARD_END, False),
    ],
)
def test_a_stream_that_was_created_after_a_stored_position_is_another(
    position: Position, is_older: bool
) -> None:
    assert is_of_another_stream(position, created_ms=NOW) is is_older


def test_a_service_that_does_not_tell_when_a_stream_was_created_has_one_stream() -> None:
    assert not is_of_another_stream(AtTimestamp(1), created_ms=0)


@pytest.mark.parametrize(
    ("shards", "created_ms", "skip_older_than"),
    [(5_000, NOW, None), (1, NOW - 2 * HOUR_MS, 3600.0)],
)
def test_a_deleted_stream_is_told_with_some_of_many_shards_unless_what_is_as_old_is_skipped(
    shards: int, created_ms: int, skip_older_than: float | None
) -> None:
    told: list[str] = []
    check = RetentionCheck(StreamClient(StreamAddress("s", None, "us-east-1")), on_loss=told.append)
    positions = {f"shardId-{n:012}": AtTimestamp(1) for n in range(shards)}
    stream = StreamSummary(24 * HOUR_MS, NOW, created_ms=created_ms)
    assert check.report_other_stream(positions, stream, skip_older_than) == positions.keys()
    assert [text.count("shardId-") for text in told] == ([10] if skip_older_than is None else [])
    assert ["and of 4990 other shards" in text for text in told] == [True] * len(told)
