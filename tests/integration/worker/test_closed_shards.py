"""moto, as it is: a closed shard never ends. Batch reads and workers do not wait in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sparkinesis.errors import ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import SHARD_END, TRIM_HORIZON, ShardRange
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.range import read_range
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.reading.shard_end import ClosedShards
from tests.integration.worker.scene import Scene, told
from tests.pace import eventually
from tests.streams import put, split

SHARD = "shardId-000000000000"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def moto(endpoint: str) -> Any:
    client = boto3.client("kinesis", region_name="us-east-1", endpoint_url=endpoint)
    client.create_stream(StreamName="s", ShardCount=2)
    put(client, "s", [b"%d" % n for n in range(20)])
    yield client
    client.delete_stream(StreamName="s")


@pytest.fixture
def client(endpoint: str, moto: Any) -> StreamClient:
    return StreamClient(StreamAddress("s", None, "us-east-1", endpoint))


class Time:
    """A clock that moves on by itself, so many seconds at each look."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return told(caplog, "does not end")


def test_a_read_to_the_end_of_a_shard_that_does_not_end_fails(
    client: StreamClient, moto: Any, caplog: pytest.LogCaptureFixture
) -> None:
    closed = split(moto, "s")

    def read(position: Any) -> ShardCursor:
        return ShardCursor(client, ShardBudget(Pace(0, 0)), closed, position, inclusive=True)

    wanted = ShardRange(closed, TRIM_HORIZON, SHARD_END)
    clock, found = Time(20.0), list[bytes]()

    def read_all() -> None:
        for records in read_range(read, wanted, RetentionCheck(client), clock=clock):
            found.extend(record.data for record in records)

    with pytest.raises(ServiceError, match=f"Shard {closed} .* does not end") as told:
        read_all()
    assert found, "what is there is read"
    assert "endingPosition" in str(told.value)
    assert 600 <= clock.now < 700
    (warning,) = warnings(caplog)
    assert closed in warning
    assert "moto" in warning


def test_of_shards_at_their_tips_the_closed_ones_are_told_once(
    client: StreamClient, moto: Any, caplog: pytest.LogCaptureFixture
) -> None:
    listed: list[float] = []
    time = Time(0.0)

    class Counting(StreamClient):
        def list_shards(self, *given: Any, **named: Any) -> Any:
            listed.append(time.now)
            return super().list_shards(*given, **named)

    shards = ClosedShards(Counting(client.address), time)
    open_shard = next(shard.id for shard in client.list_shards()[0][1:])
    tips = {SHARD: 0.0, open_shard: 40.0}
    assert shards.check(tips) == 60
    time.now = 60.0
    assert shards.check(tips) == 300, "the other one was looked at as well"
    assert warnings(caplog) == []
    moto.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="7")
    for time.now in range(61, 1000, 15):
        shards.check(tips)
    (warning,) = warnings(caplog)
    assert SHARD in warning
    assert [round(at) for at in listed] == [60, 361, 661, 961]
    assert shards.check({}) == float("inf"), "nobody waits"
    assert len(listed) == 4


def test_where_kinesis_itself_answers_nothing_is_listed(client: StreamClient) -> None:
    """It ends closed shards: a shard without records is one without records."""
    on_aws = StreamClient(StreamAddress("s", None, "us-east-1"))
    assert ClosedShards(on_aws, lambda: 1e6).check({SHARD: 0.0}) == float("inf")


def test_a_worker_tells_of_a_shard_that_does_not_end(
    scene: Scene, endpoint: str, moto: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minute is shortened; all else is as it is."""
    monkeypatch.setattr("sparkinesis.stream.reading.shard_end.WARN_AFTER", 0.5)
    moto.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey="7")
    scene.start({"cleanup_interval": 0.2}, name="closed", stream="s", endpoint=endpoint)
    eventually(lambda: any(f"Shard {SHARD} of stream" in text for text in warnings(scene.caplog)))
