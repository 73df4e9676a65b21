"""A server that starts to read before the requested position, and answers as a test says."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import pytest

from sparkinesis.source.reading.subscribed_cursor import SubscribedCursor, SubscribeLimiter
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.position import (
    SHARD_END,
    AfterRecord,
    AtTimestamp,
    Position,
    ShardRange,
)
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.scripted import DATE_MS, Answer, Script, Scripted, answer, serving

SHARD = "shardId-000000000000"
ITERATOR = answer({"ShardIterator": "i"})


@pytest.fixture(scope="module")
def service() -> Iterator[Scripted]:
    with serving() as running:
        yield running


@pytest.fixture
def script(service: Scripted) -> Script:
    return service.begin()


@pytest.fixture
def client(script: Script) -> StreamClient:
    return StreamClient(
        StreamAddress("s", None, "us-east-1", script.endpoint), Retry(give_up_after=0)
    )


def page(
    numbers: Sequence[int], *, ends: bool = False, behind: int = 0, arrival: float = DATE_MS / 1000
) -> Answer:
    records = [
        {
            "Data": base64.b64encode(str(number).encode()).decode(),
            "PartitionKey": "k",
            "SequenceNumber": str(number),
            "ApproximateArrivalTimestamp": arrival,
        }
        for number in numbers
    ]
    following = {} if ends else {"NextShardIterator": "i"}
    return answer({"Records": records, "MillisBehindLatest": behind, **following})


def poll(client: StreamClient, position: Position, inclusive: bool = True) -> ShardCursor:
    return ShardCursor(client, ShardBudget(Pace(0, 0)), SHARD, position, inclusive=inclusive)


def test_a_range_holds_only_what_was_planned(script: Script, client: StreamClient) -> None:
    """And the position has not expired: its record is there, behind those not asked for."""
    script.on("GetShardIterator", ITERATOR)
    script.on("GetRecords", page([1, 2], behind=9), page([3, 4], behind=9), page([5, 6], behind=9))
    wanted = ShardRange(SHARD, AfterRecord("3"), AfterRecord("5"))
    pages = read_range(lambda at: poll(client, at), wanted, RetentionCheck(client))
    assert [[one.data for one in records] for records in pages] == [[b"4"], [b"5"]]


def test_a_range_since_an_instant_has_nothing_older(script: Script, client: StreamClient) -> None:
    script.on("GetShardIterator", ITERATOR)
    old = DATE_MS / 1000 - 3000.5
    script.on("GetRecords", page([1, 2], arrival=old, behind=9), page([3, 4], ends=True))
    wanted = ShardRange(SHARD, AtTimestamp(DATE_MS - 60_000), SHARD_END)
    pages = read_range(lambda at: poll(client, at), wanted, RetentionCheck(client))
    assert [[one.data for one in records] for records in pages] == [[b"3", b"4"]]


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
            "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1790000000",
            SHARD,
            position,
            end=wanted.end,
            poll=lambda at, inclusive: poll(client, at, inclusive),
        )

    pages = read_range(subscribe, wanted, RetentionCheck(client))
    assert [[one.data for one in records] for records in pages] == [[b"3", b"4"], [b"5"]]
