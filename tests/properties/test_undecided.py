"""A plan that cannot decide where its batch ends says so; ordinary plans are far from it."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import SparkinesisError
from sparkinesis.local import ManualClock
from sparkinesis.source.planning import aligned_batch
from tests.properties.conftest import World
from tests.properties.test_p10_time import put_skewed
from tests.streams import put, split


def put_reshard_and_backlog(kinesis: Any, clock: ManualClock) -> None:
    """A stream whose batch ends before the records of children, and one that could go further."""
    kinesis.create_stream(StreamName="t", ShardCount=1)
    for _ in range(2):
        put_skewed(kinesis, clock, "s", 20)
        split(kinesis, "s")
    put_skewed(kinesis, clock, "s", 20)
    put(kinesis, "t", [b"x"])
    clock.advance(1_000)


def test_the_latest_of_the_streams_bounds_fails_by_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_reshard_and_backlog(world.kinesis, world.clock)
    monkeypatch.setattr(aligned_batch, "min", max, raising=False)
    with pytest.raises(SparkinesisError) as error:
        list(world.query(streamName="s,t").drain())
    text = str(error.value)
    assert "stream 's' could end at" in text
    assert "shard shardId-000000000000 of stream 's' from TRIM_HORIZON, known up to its end" in text
    assert "stream 't'" not in text
    assert "restart the query" in text
