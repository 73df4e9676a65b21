"""A local Kinesis on a clock that tests turn, without limits unless a test asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.engine import MODES, Query, query_of
from tests.streams import arn_of

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


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%06d" % n for n in range(first, first + count)]


def register(kinesis: Any, stream: str) -> None:
    """Before a query does, which would look a second later whether the consumer is ACTIVE."""
    name = MODES["efo"]["consumerName"]
    kinesis.register_stream_consumer(StreamARN=arn_of(kinesis, stream), ConsumerName=name)


@pytest.fixture
def query(server: LocalServer, kinesis: Any, mode: str) -> Iterator[Callable[..., Query]]:
    """Makes queries; ``by``: of another consumerMode than the test's."""
    made: dict[str, list[Query]] = {mode: [] for mode in MODES}
    registered: set[str] = set()

    def make(by: str = mode, **options: str) -> Query:
        given = {**MODES[by], **options}
        names = given.pop("streamName", "s")
        streams = set(names.split(",")) if by == "efo" else set()
        for stream in streams - registered:
            register(kinesis, stream)
        registered.update(streams)
        made[by].append(query_of(server, names, **given))
        return made[by][-1]

    yield make
    pushed = any(c.records for c in server.kinesis.calls.select("SubscribeToShardEvent"))
    assert pushed or not any(query.rows_read for query in made["efo"])
    assert made["efo"] or not pushed


@dataclass(frozen=True)
class World:
    """A local Kinesis with a stream ``s`` of two shards, its clock, and queries that read it."""

    server: LocalServer
    kinesis: Any
    clock: ManualClock
    query: Callable[..., Query]


@pytest.fixture
def world(
    server: LocalServer, kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> World:
    return World(server, kinesis, clock, query)
