"""A local Kinesis on a clock that tests turn, without limits unless a test asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.engine import MODES, Query

START_MS = 1_790_000_000_000


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False, clock=clock) as running:
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    client = server.client("kinesis")
    client.create_stream(StreamName="s", ShardCount=2)
    return client


@pytest.fixture
def mode() -> str:
    """How queries read; tests that are about both ways are parametrised over `MODES`."""
    return "polling"


def register(kinesis: Any, stream: str) -> None:
    """Before a query does, which would look a second later whether the consumer is ACTIVE."""
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    name = MODES["efo"]["consumerName"]
    kinesis.register_stream_consumer(StreamARN=summary["StreamARN"], ConsumerName=name)


@pytest.fixture
def query(server: LocalServer, kinesis: Any, mode: str) -> Iterator[Callable[..., Query]]:
    """Makes queries; ``by``: of another consumerMode than the test's."""
    made: dict[str, list[Query]] = {mode: [] for mode in MODES}
    registered: set[str] = set()

    def make(by: str = mode, **options: str) -> Query:
        defaults = {"streamName": "s", "endpoint": server.endpoint_url, "region": "us-east-1"}
        defaults |= {"initialPosition": "trim_horizon", **MODES[by]}
        given = {**defaults, **options}
        streams = set(given["streamName"].split(",")) if by == "efo" else set()
        for stream in streams - registered:
            register(kinesis, stream)
        registered.update(streams)
        made[by].append(Query(**given))
        return made[by][-1]

    yield make
    pushed = any(c.records for c in server.kinesis.calls.select("SubscribeToShardEvent"))
    assert pushed or not any(query.rows_read for query in made["efo"])
    assert made["efo"] or not pushed
