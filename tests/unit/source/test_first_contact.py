"""A query that cannot reach its stream at first says so soon."""

from __future__ import annotations

import socket

import pytest

from sparkinesis.errors import ServiceError
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.timing import Timing
from tests.planners import next_end, stream_planner

HERE = "sparkinesis.source.planning.stream_planner.STARTUP_RETRY"


@pytest.mark.parametrize("start", [{ANY_SHARD: TRIM_HORIZON}, {"shardId-0": AfterRecord("7", 8)}])
def test_a_stream_that_cannot_be_reached_is_told_soon(
    start: Positions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a beginning, and where a query goes on from a checkpoint."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def retry(seconds: float) -> Backoff:
        return Backoff(
            base=2.0, give_up_after=seconds, clock=lambda: now, sleep=sleep, uniform=lambda _, b: b
        )

    monkeypatch.setattr(HERE, retry(10.0))
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        client = StreamClient(StreamAddress("s", None, "us-east-1", endpoint), retry(300.0))
        planner = stream_planner(client, timing=Timing(sleep=sleep))
        with pytest.raises(ServiceError):
            next_end(planner, start)
    assert now <= 10.0
