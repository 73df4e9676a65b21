"""A server that starts to read before the requested position, and answers as a test says."""

from __future__ import annotations

import pytest

from sparkinesis.source.reading.subscribed_cursor import SubscribedCursor, SubscribeLimiter
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.position import (
    SHARD_END,
    AfterRecord,
    Position,
    ShardRange,
)
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.integration.stream.conftest import CONSUMER_ARN, SHARD
from tests.scripted import Answer, Script


@pytest.fixture
def client(script: Script) -> StreamClient:
    return StreamClient(
        StreamAddress("s", None, "us-east-1", script.endpoint), Retry(give_up_after=0)
    )


def poll(client: StreamClient, position: Position, inclusive: bool = True) -> ShardCursor:
    return ShardCursor(client, ShardBudget(Pace(0, 0)), SHARD, position, inclusive=inclusive)


def test_a_task_by_enhanced_fan_out_reads_a_closed_shard_to_its_end(
    script: Script, client: StreamClient
) -> None:
    """Each event of the closed shard names its children, and the subscription begins anew."""
    children = ["shardId-1", "shardId-2"]
    events = [records_event(numbers, 9, children) for numbers in ([1, 2], [3, 4], [5], [])]
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE, *events]))
    wanted = ShardRange(SHARD, AfterRecord("2"), SHARD_END)

    def subscribe(position: Position) -> SubscribedCursor:
        return SubscribedCursor(
            client,
            SubscribeLimiter(None),
            CONSUMER_ARN,
            SHARD,
            position,
            end=wanted.end,
            poll=lambda at, inclusive: poll(client, at, inclusive),
        )

    pages = read_range(subscribe, wanted, RetentionCheck(client))
    assert [[one.data for one in records] for records in pages] == [[b"3", b"4"], [b"5"]]
