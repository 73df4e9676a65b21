"""A local Kinesis on a clock that a test turns, with all limits, and a stream of one shard."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.fan_out.cursor import RETRY
from sparkinesis.stream.fan_out.registered_consumers import register_consumer
from sparkinesis.stream.position import TRIM_HORIZON, Position
from tests.fetching import FetchingCursor
from tests.scripted import Script, Scripted, serving

START_MS = 1_790_000_000_000
SHARD = "shardId-000000000000"
STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
CONSUMER_ARN = f"{STREAM_ARN}/consumer/c:1790000000"

OpenCursor = Callable[..., FetchingCursor]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(clock=clock) as running:
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    client = server.client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
    return client


@pytest.fixture
def client(server: LocalServer, kinesis: Any, clock: ManualClock) -> StreamClient:
    return StreamClient(
        StreamAddress("s", None, "us-east-1", server.endpoint_url),
        Backoff(sleep=lambda seconds: waited(clock, seconds), clock=lambda: clock() / 1000),
        wall_clock_ms=clock,
    )


@pytest.fixture(scope="module")
def service() -> Iterator[Scripted]:
    with serving() as running:
        yield running


@pytest.fixture
def script(service: Scripted) -> Script:
    """What another server answers, which stands for the service."""
    return service.begin()


def waited(clock: ManualClock, seconds: float) -> None:
    clock.advance(math.ceil(seconds * 1000))


@pytest.fixture
def consumer(client: StreamClient, clock: ManualClock) -> str:
    return register_consumer(client, "c", Backoff(sleep=lambda seconds: waited(clock, seconds)))


@pytest.fixture
def open_cursor(client: StreamClient, consumer: str, clock: ManualClock) -> Iterator[OpenCursor]:
    """Cursors on the server's clock, which goes on while they wait. They are stopped at the end."""
    opened: list[FetchingCursor] = []

    def open_one(
        position: Position = TRIM_HORIZON, metrics: Metrics = OFF, **options: Any
    ) -> FetchingCursor:
        def wait(_: threading.Event, seconds: float) -> None:
            waited(clock, seconds)

        own = StreamClient(client.address, wall_clock_ms=clock, metrics=metrics)
        defaults = {"retry": replace(RETRY, clock=lambda: clock() / 1000), "wait": wait}
        cursor = FetchingCursor(own, consumer, SHARD, position, **{**defaults, **options})
        opened.append(cursor)
        return cursor

    yield open_one
    for cursor in opened:
        cursor.stop()
