"""What calls and subscriptions measure, compared with what the server has answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.errors import AccessDeniedError, ExpiredIteratorError
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.metrics.catalogue import (
    CALL_DURATION,
    CALL_RETRIES,
    ITERATORS_EXPIRED,
    RECORDS_FETCHED,
    SUBSCRIPTIONS_ENDED,
)
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.fan_out.cursor import RETRY
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.failing import Failing
from tests.fetching import FetchingCursor
from tests.integration.stream.conftest import CONSUMER_ARN, SHARD, OpenCursor, waited
from tests.integration.stream.test_fan_out import read_up_to
from tests.scripted import Answer, Script
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


@dataclass
class Subscriber:
    """A cursor on the server's clock, which goes on while it waits, and what it has measured."""

    cursor: FetchingCursor
    tally: Tally

    def read(self, last: bytes) -> list[bytes]:
        return read_up_to(self.cursor, last)

    @property
    def endings(self) -> dict[str, float]:
        ended = counted(self.tally, SUBSCRIPTIONS_ENDED)
        assert {stream for stream, _ in ended} <= {"s"}
        return {reason: number for (_, reason), number in ended.items()}

    @property
    def attempts(self) -> dict[str, float]:
        """The attempts of SubscribeToShard, by result."""
        made = counted(self.tally, CALL_DURATION)
        return {result: n for (_, name, result), n in made.items() if name == "SubscribeToShard"}

    @property
    def retries(self) -> dict[tuple[str, ...], float]:
        return counted(self.tally, CALL_RETRIES)


@pytest.fixture
def subscribe(open_cursor: OpenCursor) -> Callable[..., Subscriber]:
    def open_one(**options: Any) -> Subscriber:
        tally = Tally()
        return Subscriber(open_cursor(metrics=tally, **options), tally)

    return open_one


def test_the_service_ends_each_after_five_minutes(
    kinesis: Any, subscribe: Callable[..., Subscriber], clock: ManualClock
) -> None:
    # By a clock of its own, which stands still, its subscriptions never get old.
    subscriber = subscribe(retry=replace(RETRY, clock=lambda: 0.0))
    for number in range(4):
        put(kinesis, "s", [b"%d" % number], "k")
        subscriber.read(b"%d" % number)
        clock.advance(300_000)
    assert subscriber.endings == {"expired": 3}
    assert subscriber.attempts == {"ok": 4}
    assert subscriber.retries == {}


CUT = Fault(cut_after=300)
EXCEPTION = Fault(stream_code="InternalFailureException", stream_after=1)


@pytest.mark.parametrize(
    ("fault", "ending", "attempts"),
    [
        (CUT, "broken", {"ok": 2}),
        (EXCEPTION, "broken", {"ok": 2}),
        (Fault.error("LimitExceededException"), "refused", {"throttled": 1, "ok": 1}),
        (Fault.error("InternalFailure", status=500), "refused", {"retryable": 1, "ok": 1}),
        (Fault.dropped(), "refused", {"retryable": 1, "ok": 1}),
    ],
    ids=["cut", "exception", "throttled", "500", "reset"],
)
def test_what_breaks_is_broken_and_what_never_began_was_refused(
    server: LocalServer,
    kinesis: Any,
    subscribe: Callable[..., Subscriber],
    *,
    fault: Fault,
    ending: str,
    attempts: dict[str, float],
) -> None:
    """A call that has succeeded is not retried, whatever becomes of its subscription."""
    server.kinesis.faults = Failing("SubscribeToShard", fault)
    subscriber = subscribe()
    for number in range(3):
        put(kinesis, "s", [b"%d" % number], "k")
        subscriber.read(b"%d" % number)
    assert subscriber.endings == {ending: 1}
    assert subscriber.attempts == attempts
    failed = attempts.keys() - {"ok"}
    assert subscriber.retries == {("s", "SubscribeToShard", result): 1 for result in failed}


def test_a_newer_subscription_takes_over_and_both_see_every_record(
    server: LocalServer, kinesis: Any, subscribe: Callable[..., Subscriber], clock: ManualClock
) -> None:
    older, newer = subscribe(), subscribe()
    put(kinesis, "s", [b"1"], "k")
    assert older.read(b"1") == [b"1"]
    assert newer.read(b"1") == [b"1"]  # refused for five seconds, as the server counts, too
    refused = sum(bool(call.error) for call in server.kinesis.calls.select("SubscribeToShard"))
    assert 0 < refused < 20
    assert newer.endings == {"refused": refused}
    assert newer.attempts == {"retryable": refused, "ok": 1}
    assert newer.retries == {("s", "SubscribeToShard", "retryable"): refused}
    put(kinesis, "s", [b"2"], "k")
    taken_over = clock()
    assert older.read(b"2") == [b"2"]
    assert clock() >= taken_over + 10_000
    put(kinesis, "s", [b"3"], "k")
    assert newer.read(b"3") == [b"2", b"3"]
    assert older.endings["taken over"] == 1
    assert older.endings.keys() <= {"taken over", "refused"}


def test_a_stop_during_the_call_closes_what_it_opens(script: Script) -> None:
    script.on("SubscribeToShard", Answer([INITIAL_RESPONSE, records_event([1], 1)], "hold"))
    script.gate.clear()
    tally = Tally()
    address = StreamAddress("s", None, "us-east-1", script.endpoint)
    client = StreamClient(address, metrics=tally)
    cursor = FetchingCursor(client, CONSUMER_ARN, SHARD, TRIM_HORIZON)
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(cursor.fetch()))
    reader.start()
    assert script.called.acquire(timeout=60)
    cursor.stop()
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {}
    script.gate.set()
    reader.join(timeout=60)
    assert answers == [None]
    assert script.gone.acquire(timeout=60)
    assert counted(tally, SUBSCRIPTIONS_ENDED) == {("s", "closed"): 1}
