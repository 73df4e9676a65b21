"""What a reader of a shard misses because it slept is told, and nothing else is (W3)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.timing import MACHINE
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.intake import Intake
from sparkinesis.worker.on_error import Retry
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processor import RecordProcessor
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.reporting.teller import EventTeller
from sparkinesis.worker.retrieval.polling import Polling
from tests.journal import PATIENCE
from tests.streams import put

HOUR = 3_600_000
MAX_PAGES = WorkerOptions().max_pages_ahead
SHARD = "shardId-000000000000"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_790_000_000_000)


@pytest.fixture
def kinesis(clock: ManualClock) -> Iterator[Any]:
    with LocalServer(port=0, limits=False, clock=clock) as server:
        client = server.client("kinesis")
        client.create_stream(StreamName="one", ShardCount=1)
        yield client


class Reader:
    """Takes a shard's batches; its intake fetches on as far as there is room."""

    def __init__(self, kinesis: Any) -> None:
        client = StreamClient(
            StreamAddress("one", region="us-east-1", endpoint=kinesis.meta.endpoint_url)
        )
        settings = ConsumerSettings(
            application="app",
            worker_id="w",
            tell=EventTeller(LogPlace("app", "w"), "one"),
            client=client,
            factory=RecordProcessor,
            on_error=Retry(),
            initial=TRIM_HORIZON,
            started_ms=0,
            service_time_ms=lambda: 0,
            options=WorkerOptions(call_even_for_empty_batches=True),  # each page is announced
            timing=MACHINE,
            rng=random.Random(),
        )
        polling = Polling(client, WorkerOptions(idle_time=0.0), MACHINE)
        self._pages = threading.Semaphore(0)
        self.intake = Intake(SHARD, None, settings, polling.open, self._pages.release)
        self.intake.begin(TRIM_HORIZON)
        self.intake.take()

    def fill(self) -> None:
        """Wait until no more is fetched ahead."""
        for _ in range(MAX_PAGES):
            assert self._pages.acquire(timeout=PATIENCE)
        for _ in range(MAX_PAGES):
            self._pages.release()

    def take(self) -> list[bytes]:
        """The next page, once it is there."""
        assert self._pages.acquire(timeout=PATIENCE)
        batch = self.intake.take()
        return [] if batch is None else [record.data for record in batch.records]

    def take_until(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        while data not in found:
            found += self.take()
        return found


@pytest.fixture
def reader(kinesis: Any) -> Iterator[Reader]:
    found = Reader(kinesis)
    yield found
    found.intake.stop()


def test_a_processor_that_sleeps_for_longer_than_records_are_kept_is_told(
    kinesis: Any, clock: ManualClock, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    put(kinesis, "one", [b"a"], "k")
    assert reader.take_until(b"a") == [b"a"]
    reader.fill()
    put(kinesis, "one", [b"lost"], "k")
    clock.advance(30 * HOUR)
    put(kinesis, "one", [b"b"], "k")
    assert reader.take_until(b"b") == [b"b"]
    assert "has expired" in caplog.text
    assert SHARD in caplog.text


def test_what_was_kept_meanwhile_is_given_once_and_nothing_is_told(
    kinesis: Any, clock: ManualClock, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=48)
    put(kinesis, "one", [b"a"], "k")
    assert reader.take_until(b"a") == [b"a"]
    reader.fill()
    put(kinesis, "one", [b"kept"], "k")
    clock.advance(30 * HOUR)
    put(kinesis, "one", [b"b"], "k")
    assert reader.take_until(b"b") == [b"kept", b"b"]
    assert not caplog.records


def test_a_quiet_shard_whose_last_record_is_gone_has_lost_nothing(
    kinesis: Any, clock: ManualClock, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    put(kinesis, "one", [b"a"], "k")
    assert reader.take_until(b"a") == [b"a"]
    for _ in range(6):
        reader.fill()
        clock.advance(6 * HOUR)
        # What was fetched before, and a look at the tip.
        assert not any(reader.take() for _ in range(MAX_PAGES + 2))
    put(kinesis, "one", [b"b"], "k")
    assert reader.take_until(b"b") == [b"b"]
    assert not caplog.records
