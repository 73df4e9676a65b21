"""How subscriptions end, and how a fan-out cursor goes on; the service says what a test wrote."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.client import StreamClient
from sparkinesis.stream.fanout import FanOutCursor
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    Position,
)
from sparkinesis.stream.retry import Retry
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.scripted import DATE_MS, Answer, Script, scripted

STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
CONSUMER_ARN = f"{STREAM_ARN}/consumer/c:1790000000"


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as running:
        yield running


class Turned:
    """A clock in seconds that goes on while somebody waits; what was waited for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, _: threading.Event, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Turned:
    return Turned()


def client(script: Script) -> StreamClient:
    address = StreamAddress("s", STREAM_ARN, "us-east-1", script.endpoint)
    return StreamClient(address, Retry(give_up_after=0))


def cursor(
    script: Script,
    clock: Turned,
    position: Position = TRIM_HORIZON,
    inclusive: bool = False,
) -> FanOutCursor:
    """Its jitter is as large as it may be."""
    return FanOutCursor(
        client(script),
        CONSUMER_ARN,
        "shardId-000000000000",
        position,
        inclusive=inclusive,
        clock=clock,
        wait=clock.wait,
        uniform=lambda _, most: most,
    )


def numbers(cursor: FanOutCursor) -> list[int]:
    fetched = cursor.fetch()
    assert fetched is not None
    return [int(record.data) for record in fetched.page.records]


def starts(script: Script) -> list[object]:
    return [call["StartingPosition"] for call in script.of("SubscribeToShard")]


def after(number: int) -> dict[str, str]:
    return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": str(number)}


def test_events_are_pages(script: Script, clock: Turned) -> None:
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE, records_event([1, 2], 2)], ends="hold"))
    fan_out = cursor(script, clock)
    fetched = fan_out.fetch()
    fan_out.stop()
    assert fetched is not None
    assert [r.sequence_number for r in fetched.page.records] == ["1", "2"]
    assert fetched.page.millis_behind_latest == 0
    assert fetched.service_time_ms == DATE_MS
    assert not fan_out.at_end
    assert script.of("SubscribeToShard") == [
        {
            "ConsumerARN": CONSUMER_ARN,
            "ShardId": "shardId-000000000000",
            "StartingPosition": {"Type": "TRIM_HORIZON"},
        }
    ]


@pytest.mark.parametrize("ends", ["reset", "close", "end"])
def test_an_interruption_goes_on_behind_the_last_event(
    script: Script, clock: Turned, ends: str
) -> None:
    script.on(
        "SubscribeToShard",
        Answer([INITIAL_RESPONSE, records_event([1, 2], 2), records_event([], 7)], ends),
        Answer([INITIAL_RESPONSE, records_event([8], 8)], "hold"),
    )
    fan_out = cursor(script, clock)
    assert [numbers(fan_out) for _ in range(3)] == [[1, 2], [], [8]]
    assert starts(script)[1:] == [after(7)]
    assert clock.waits == [5.5]  # the rest of five seconds, and the first backoff
    fan_out.stop()
