"""The identities of many streams, within the limits of an account."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.local import Limits, LocalServer
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.stream_identity import (
    BETWEEN_STREAM_PAGES,
    StreamIdentity,
    identify,
    list_streams,
)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """An account of 230 streams, with the service's limits."""
    with LocalServer(limits=False) as running:
        for number in range(230):
            running.kinesis.call("CreateStream", StreamName=f"s-{number:03}", ShardCount=1)
        running.kinesis.limits = True
        yield running


@pytest.mark.parametrize(
    ("wanted", "pages", "described"),
    [
        (range(230), 3, 0),
        (range(50), 1, 0),  # all are on the first page
        (range(2), 0, 2),
        ([*range(9), 229], 3, 0),
        ([*range(9), 999], 3, 1),  # there is no such stream
    ],
)
def test_streams_are_listed_a_hundred_in_a_call_as_far_as_they_are_wanted(
    server: LocalServer, wanted: list[int], pages: int, described: int
) -> None:
    addresses = [
        StreamAddress(f"s-{number:03}", None, "us-east-1", server.endpoint_url) for number in wanted
    ]
    server.kinesis.calls.clear()
    found = dict(identify(addresses, StreamClient, time.monotonic, time.sleep))
    calls: Counter[Any] = Counter((call.operation, call.error) for call in server.kinesis.calls)
    missing = [one.name for one in addresses if not isinstance(found[one], StreamIdentity)]
    assert missing == [f"s-{number:03}" for number in wanted if number >= 230]
    assert calls["ListStreams", None] == pages
    assert sum(count for (name, _), count in calls.items() if "Describe" in name) == described
    assert not [error for _, error in calls if error not in {None, "ResourceNotFoundException"}]


def test_an_account_of_far_more_streams_than_are_wanted_is_not_listed_to_its_end(
    server: LocalServer,
) -> None:
    slept: list[float] = []
    address = StreamAddress("s-000", None, "us-east-1", server.endpoint_url)
    client = StreamClient(address, Backoff(sleep=slept.append))
    server.kinesis.calls.clear()
    found = list_streams(client, {"s-229"}, 2)
    assert len(found) == 200
    assert slept == [BETWEEN_STREAM_PAGES]
    assert Limits().account_calls["ListStreams"] > 1 / BETWEEN_STREAM_PAGES
    assert len([call for call in server.kinesis.calls if call.operation == "ListStreams"]) == 2
