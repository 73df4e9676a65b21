"""Where the reading of a shard begins, by its lease and the bound of ``skip_older_than``."""

from __future__ import annotations

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.worker.lifecycle.shard.starting import not_before, start_of, start_position

NOW = 9_000
AT_5 = AtTimestamp(5_000)


def lease(at: str, sub: int = 0, timestamp_ms: int | None = None) -> Lease:
    return Lease("s", "s", ExtendedSequenceNumber(at, sub), timestamp_ms=timestamp_ms)


@pytest.mark.parametrize(
    ("row", "initial", "start"),
    [
        (lease("LATEST"), AT_5, AtTimestamp(NOW)),
        (lease("LATEST", 0, 7), TRIM_HORIZON, AtTimestamp(7)),
        (lease("AT_TIMESTAMP"), AT_5, AT_5),
        (lease("AT_TIMESTAMP"), LATEST, TRIM_HORIZON),
        (lease("AT_TIMESTAMP", 0, 7), AT_5, AtTimestamp(7)),
        (lease("TRIM_HORIZON"), AT_5, TRIM_HORIZON),
        (lease("20", 3), AT_5, AfterRecord("20", sub_sequence_number=3)),
        (lease("20"), AT_5, AfterRecord("20", sub_sequence_number=0)),
    ],
)
def test_a_shard_begins_at_its_checkpoint(row: Lease, initial: Position, start: Position) -> None:
    assert start_position(row, initial, NOW) == start


def test_without_deaggregation_a_record_is_done_as_a_whole() -> None:
    """But for one of which a worker with it has processed a part."""
    for sub, left in ((0, None), (3, 3)):
        found = start_position(lease("20", sub), TRIM_HORIZON, NOW, deaggregate=False)
        assert found == AfterRecord("20", sub_sequence_number=left)


def test_a_start_lies_not_before_the_bound() -> None:
    assert not_before(TRIM_HORIZON, 5_000) == AT_5
    assert not_before(AtTimestamp(4_999), 5_000) == AT_5
    assert not_before(AtTimestamp(5_001), 5_000) == AtTimestamp(5_001)
    assert not_before(AfterRecord("20"), 5_000) == AfterRecord("20"), "it may lie behind"
    assert start_of(lease("TRIM_HORIZON"), TRIM_HORIZON, NOW, 5_000)[0] == AT_5


def test_what_is_wanted_is_known_where_no_record_was_read() -> None:
    for bound_ms in (None, 5_000):
        _, unread = start_of(lease("20"), TRIM_HORIZON, NOW, bound_ms)
        assert unread is None
    row = lease("AT_TIMESTAMP", 0, 3_000)
    (_, early), (start, late) = (
        start_of(row, TRIM_HORIZON, NOW, bound_ms) for bound_ms in (None, 5_000)
    )
    assert isinstance(early, WantedRecords)
    assert (start, late) == (AT_5, early.not_before(5_000))
    assert early != late
