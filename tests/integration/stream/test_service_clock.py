"""The service's clock: told to many by one call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.shared_calls import service_clock, shared_summary
from tests.integration.stream.conftest import START_MS


def test_who_asks_within_a_second_shares_a_call(
    client: StreamClient, server: LocalServer, clock: ManualClock
) -> None:
    passed = [50.0]
    tell = service_clock(shared_summary(client, lambda: passed[0]))
    server.kinesis.calls.clear()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: tell(), range(30))) == {START_MS}
    assert server.kinesis.calls.count("DescribeStreamSummary") == 1
    passed[0] += 0.75
    assert tell() == START_MS + 750
    clock.advance(3_600_000)
    passed[0] += 0.25
    assert tell() == START_MS + 3_600_000
