"""The metrics of enhanced fan-out: what ended each subscription, and its calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.metrics.catalogue import (
    CALL_DURATION,
    CALL_RETRIES,
    SUBSCRIPTIONS_ENDED,
)
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.cursor import RETRY
from sparkinesis.stream.position import TRIM_HORIZON
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.failing import Failing
from tests.fetching import FetchingCursor
from tests.integration.stream.conftest import CONSUMER_ARN, SHARD, OpenCursor
from tests.integration.stream.test_fan_out import read_up_to
from tests.scripted import Answer, Script
from tests.streams import put
from tests.tallies import counted


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
