from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests import pace


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_123)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(clock=clock, limits=False) as running:
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    """A boto3 client without retries, so that tests see every response."""
    return once(server, "kinesis")


def once(server: LocalServer, service: str, region: str = "us-east-1") -> Any:
    from botocore.config import Config  # noqa: PLC0415

    config = Config(retries={"total_max_attempts": 1}, read_timeout=pace.seconds(10))
    return server.client(service, region, config=config)


def first_iterator(server: LocalServer, shard: str = "shardId-000000000000") -> str:
    """An iterator at the oldest record of the stream "s"."""
    begin = {"ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    answer = server.kinesis.call("GetShardIterator", StreamName="s", **begin)
    return str(answer["ShardIterator"])


def records(server: LocalServer) -> list[bytes]:
    """The data of the first shard of the stream "s"."""
    page = server.kinesis.call("GetRecords", ShardIterator=first_iterator(server))
    return [base64.b64decode(record["Data"]) for record in page["Records"]]
