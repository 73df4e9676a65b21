"""What calls measure, compared with what the server has answered.

`test_fan_out_endings` has what subscriptions measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError, ExpiredIteratorError
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.metrics.catalogue import (
    CALL_DURATION,
    CALL_RETRIES,
    ITERATORS_EXPIRED,
    RECORDS_FETCHED,
)
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.failing import Failing
from tests.integration.stream.conftest import SHARD, waited
from tests.streams import put
from tests.tallies import counted, seconds


@dataclass
class Reader:
    """A client whose retries take no time but the clock's, which the calls and waits turn."""

    server: LocalServer
    clock: ManualClock
    tally: Tally = field(default_factory=Tally)
    asked: int = 0
    """The times that the retries' clock was asked."""

    def client(self, metrics: Metrics) -> StreamClient:
        def now() -> float:
            self.asked += 1
            return self.clock() / 1000

        return StreamClient(
            StreamAddress("s", None, "us-east-1", self.server.endpoint_url),
            Backoff(
                give_up_after=20.0,
                clock=now,
                sleep=lambda pause: waited(self.clock, pause),
                uniform=lambda _, high: high,
            ),
            self.clock,
            metrics,
        )

    def cursor(self, metrics: Metrics | None = None, *, renews: bool = True) -> ShardCursor:
        client = self.client(self.tally if metrics is None else metrics)
        budget = ShardBudget(Pace(0.0, 0.0))
        return ShardCursor(client, budget, SHARD, TRIM_HORIZON, renews=renews)


@pytest.fixture
def reader(server: LocalServer, kinesis: Any, clock: ManualClock) -> Iterator[Reader]:
    assert kinesis
    yield Reader(server, clock)
    server.kinesis.faults = None


def of_server(server: LocalServer, operation: str) -> Counter[str | None]:
    """The errors of the calls that the server has answered; None: there was none."""
    return Counter(call.error for call in server.kinesis.calls.select(operation, stream="s"))


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (Fault.error("ProvisionedThroughputExceededException"), "throttled"),
        (Fault.error("KMSThrottlingException"), "throttled"),
        (Fault.error("InternalFailure", status=500), "retryable"),
        (Fault.dropped("before"), "retryable"),
        (Fault.dropped("after"), "retryable"),
    ],
    ids=["throttled", "by its keys", "500", "reset", "answer lost"],
)
def test_what_passes_is_counted_as_attempt_and_as_retry(
    reader: Reader, kinesis: Any, fault: Fault, result: str
) -> None:
    put(kinesis, "s", [b"1", b"2", b"3"], "k")
    reader.server.kinesis.faults = Failing("GetRecords", fault, fault)
    assert len(reader.cursor().fetch().page.records) == 3
    attempts = counted(reader.tally, CALL_DURATION)
    assert attempts == {
        ("s", "GetShardIterator", "ok"): 1,
        ("s", "GetRecords", "ok"): 1,
        ("s", "GetRecords", result): 2,
    }
    assert counted(reader.tally, CALL_RETRIES) == {("s", "GetRecords", result): 2}
    at_server = of_server(reader.server, "GetRecords")
    assert at_server[None] == 1
    assert sum(at_server.values()) == 3
    assert counted(reader.tally, RECORDS_FETCHED) == {("s",): 3}


def test_what_no_retry_mends_is_counted_once(reader: Reader) -> None:
    reader.server.kinesis.faults = Failing("GetShardIterator", Fault.error("AccessDeniedException"))
    with pytest.raises(AccessDeniedError):
        reader.cursor().fetch()
    assert counted(reader.tally, CALL_DURATION) == {("s", "GetShardIterator", "failed"): 1}
    assert counted(reader.tally, CALL_RETRIES) == {}


@pytest.mark.parametrize("renews", [True, False])
def test_an_iterator_that_expired_is_counted_by_itself(
    reader: Reader, kinesis: Any, clock: ManualClock, renews: bool
) -> None:
    """By the server's own rule: nobody uses it for more than five minutes."""
    cursor = reader.cursor(renews=renews)
    cursor.fetch()
    put(kinesis, "s", [b"1"], "k")
    clock.advance(300_001)
    if renews:
        assert len(cursor.fetch().page.records) == 1
    else:
        with pytest.raises(ExpiredIteratorError):
            cursor.fetch()
    assert of_server(reader.server, "GetRecords")["ExpiredIteratorException"] == 1
    assert counted(reader.tally, ITERATORS_EXPIRED) == {("s",): 1}
    assert counted(reader.tally, CALL_DURATION)["s", "GetRecords", "expired"] == 1
    assert counted(reader.tally, CALL_RETRIES) == {}


def test_a_slow_call_takes_as_long_as_it_takes_and_its_budget_does_not_count(
    reader: Reader,
) -> None:
    """The clock goes on during the call alone, and while the budget makes the reader wait."""

    def slow(call: Call) -> None:
        if call.operation == "GetRecords":
            reader.clock.advance(2_500)

    reader.server.kinesis.faults = slow
    client = reader.client(reader.tally)
    iterator = client.shard_iterator(SHARD, TRIM_HORIZON)

    class Waiting:
        def __enter__(self) -> None:
            reader.clock.advance(60_000)

        def __exit__(self, *_: object) -> None:
            reader.clock.advance(60_000)

    client.get_records(SHARD, iterator, 10, budget=Waiting())
    taken = seconds(reader.tally, CALL_DURATION)
    assert taken == {
        ("s", "GetRecords", "ok"): pytest.approx(2.5),
        ("s", "GetShardIterator", "ok"): 0.0,
    }


def test_off_costs_nothing(reader: Reader, kinesis: Any) -> None:
    """Nobody asks a clock for a measurement, nor is anything counted."""
    put(kinesis, "s", [b"1"], "k")

    def asks(metrics: Metrics) -> int:
        before = reader.asked
        reader.cursor(metrics).fetch()
        return reader.asked - before

    asks(OFF)  # opens the connection
    calls = 2
    assert asks(OFF) == 0
    assert asks(Tally()) == 2 * calls, "the start and the end of each call"
