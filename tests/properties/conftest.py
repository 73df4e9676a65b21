"""A local Kinesis on a clock that tests turn, without limits unless a test asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.engine import Query

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
def query(server: LocalServer) -> Callable[..., Query]:
    def make(**options: str) -> Query:
        defaults = {"streamName": "s", "endpoint": server.endpoint_url, "region": "us-east-1"}
        return Query(**{**defaults, "initialPosition": "trim_horizon", **options})

    return make
