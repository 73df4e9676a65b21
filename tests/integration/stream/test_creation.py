"""A reader that starts while its stream is being made waits for it, says so, and gives up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.types import StructType

from sparkinesis import Application, WorkerOptions
from sparkinesis.errors import ServiceError, StreamNotFoundError
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.datasource import KinesisDataSource
from sparkinesis.stream.address import StreamAddress, stream_address
from sparkinesis.stream.calls import caller
from sparkinesis.stream.calls.caller import CREATION
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.reading.following import follow
from sparkinesis.stream.timing import Timing
from tests.engine import Query

SECONDS = 45
"""So long a stream is CREATING, by the server's clock, which a wait moves."""


class _Waiting:
    """A clock of a program and a server, which only waits move."""

    def __init__(self) -> None:
        self.server_clock = ManualClock()
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.server_clock.advance(round(seconds * 1000))

    def clock(self) -> float:
        return self.now


@pytest.fixture
def waiting() -> _Waiting:
    return _Waiting()


@pytest.fixture
def server(waiting: _Waiting) -> Iterator[LocalServer]:
    with LocalServer(
        port=0, clock=waiting.server_clock, limits=None, stream_delay_ms=SECONDS * 1000
    ) as running:
        yield running


@pytest.fixture
def address(server: LocalServer) -> StreamAddress:
    server.client("kinesis").create_stream(StreamName="s", ShardCount=2)
    return stream_address("s", "us-east-1", server.endpoint_url)


@pytest.fixture
def client(address: StreamAddress, waiting: _Waiting) -> StreamClient:
    return StreamClient(address, Backoff(clock=waiting.clock, sleep=waiting.sleep))


def _shards(client: StreamClient) -> int:
    return len(client.list_shards_created()[0])


def _summary(client: StreamClient) -> int:
    client.describe_created()
    return len(client.list_shards()[0])


def _follow(client: StreamClient) -> int:
    assert list(follow(client, TRIM_HORIZON, ends=True)) == []
    return _shards(client)


@pytest.mark.parametrize("begin", [_shards, _summary, _follow])
def test_the_wait_ends_with_the_creation(
    client: StreamClient,
    waiting: _Waiting,
    caplog: pytest.LogCaptureFixture,
    begin: Callable[[StreamClient], int],
) -> None:
    with caplog.at_level(logging.WARNING):
        assert begin(client) == 2
    assert SECONDS <= waiting.now <= SECONDS + 5
    told = [one.getMessage() for one in caplog.records]
    assert [text.split(" in us-east-1")[0] for text in told] == ["stream 's'"] * 3
    assert ["CREATING" in text for text in told] == [True, True, False]
    assert f"is ACTIVE after {SECONDS} s" in told[-1]


def test_a_worker_waits(server: LocalServer, address: StreamAddress, waiting: _Waiting) -> None:
    application = Application(
        "app",
        "s",
        lambda batch: None,
        region="us-east-1",
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(failover_time=5.0),
    )
    worker = application.worker(timing=Timing(clock=waiting.clock, sleep=waiting.sleep))
    assert waiting.now >= SECONDS
    worker.shutdown(0)


def test_a_creation_without_end_is_given_up(
    server: LocalServer, address: StreamAddress, client: StreamClient, waiting: _Waiting
) -> None:
    server.client("kinesis").delete_stream(StreamName="s")
    waiting.sleep(SECONDS)
    server.kinesis.stream_delay_ms = 3_600_000
    server.client("kinesis").create_stream(StreamName="s", ShardCount=2)
    waiting.now = 0.0
    with pytest.raises(ServiceError, match=r"'s' .*still being created \(CREATING\) after 30\d s"):
        client.list_shards_created()
    assert waiting.now <= CREATION + 10


def test_a_stream_that_is_being_deleted_is_said_to_be(
    server: LocalServer, client: StreamClient, waiting: _Waiting
) -> None:
    waiting.sleep(SECONDS)
    server.client("kinesis").delete_stream(StreamName="s")
    for begin in (_shards, _summary):
        with pytest.raises(StreamNotFoundError, match=r"'s' .* is being deleted \(DELETING\)"):
            begin(client)
    assert waiting.now == SECONDS


def test_a_stream_that_is_being_changed_is_read_at_once(
    server: LocalServer, client: StreamClient, waiting: _Waiting
) -> None:
    waiting.sleep(SECONDS)
    server.client("kinesis").increase_stream_retention_period(
        StreamName="s", RetentionPeriodHours=48
    )
    assert (_summary(client), waiting.now) == (2, SECONDS)


class _Creating(logging.Handler):
    """Ends the creation of a stream as soon as somebody says that he waits for it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.told: list[str] = []
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        self._clock.advance(SECONDS * 1000)


@pytest.mark.parametrize("is_streaming", [False, True])
def test_a_dataframe_waits(
    server: LocalServer, address: StreamAddress, waiting: _Waiting, *, is_streaming: bool
) -> None:
    """By the machine's clock, for a second: the planner makes its own clients."""
    options = {"streamName": "s", "region": "us-east-1", "endpoint": server.endpoint_url}
    log, ending = logging.getLogger(caller.__name__), _Creating(waiting.server_clock)
    log.addHandler(ending)
    try:
        if is_streaming:
            for batch in Query(**options, initialPosition="trim_horizon").drain():
                assert batch.rows == []
        else:
            assert [*KinesisDataSource(options).reader(StructType()).partitions()] == []
    finally:
        log.removeHandler(ending)
    assert ["CREATING" in text for text in ending.told] == [True, False]
