"""Looks for closed shards of many streams."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.reading.shard_end import CHECK_AGAIN, WARN_AFTER, ClosedShards
from sparkinesis.stream.shard import Shard

SHARD = "shardId-000000000000"


class Listing:
    """Counts the listings of a stream with one shard."""

    address = StreamAddress("s", None, "us-east-1", "http://kinesis.test")

    def __init__(self, *, is_open: bool = True) -> None:
        self.count = 0
        self._shard = Shard(SHARD, is_open=is_open)

    def list_shards(self) -> tuple[list[Shard], int]:
        self.count += 1
        return [self._shard], 0


def test_streams_that_reached_their_tips_together_are_looked_at_one_after_the_other() -> None:
    listing: Any = Listing()
    now = 0.0
    streams = [ClosedShards(listing, lambda: now, number / 100) for number in range(100)]
    by_second = []
    for second in range(int(WARN_AFTER + 2 * CHECK_AGAIN)):
        now, before = float(second), listing.count
        for stream in streams:
            stream.check({SHARD: 0.0})
        by_second.append(listing.count - before)
    assert sum(by_second[: int(WARN_AFTER)]) == 0
    assert 190 <= listing.count <= 210
    assert max(by_second) <= 2


def test_a_missing_end_is_said_once_and_again_if_the_reader_has_gone_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listing: Any = Listing(is_open=False)
    now = 0.0
    shards = ClosedShards(listing, lambda: now, 0.0)

    def warnings_at(at: float, tips: dict[str, float]) -> int:
        nonlocal now
        now = at
        caplog.clear()
        shards.check(tips)
        return len(caplog.records)

    assert [warnings_at(at * WARN_AFTER, {SHARD: 0.0}) for at in (2, 4, 6)] == [1, 0, 0]
    assert warnings_at(7 * WARN_AFTER, {}) == 0
    assert warnings_at(9 * WARN_AFTER, {SHARD: 7 * WARN_AFTER}) == 1
