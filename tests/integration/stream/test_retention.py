"""What only the shard itself can tell of a start that retention may have passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched, Page
from sparkinesis.stream.position import AfterRecord, AtTimestamp
from sparkinesis.stream.reading.retention import RetentionCheck
from tests.integration.stream.conftest import SHARD, START_MS
from tests.streams import put, split

HOUR = 3_600_000
START = AtTimestamp(START_MS + HOUR)


@pytest.fixture
def is_doubted(
    kinesis: Any, client: StreamClient, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> Callable[[], bool]:
    """Whether it is said that records behind `START`, of thirty hours ago, may have expired."""
    kinesis.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=72)

    def asked() -> bool:
        clock.advance(START.ms + 30 * HOUR - clock())
        check = RetentionCheck(client, logs_doubt=True)
        assert check.check_start(SHARD, START, Fetched(Page([]), 0, clock())) == []
        return "nothing shows whether it was" in caplog.text

    return asked


@pytest.mark.parametrize(
    ("before_ms", "expected"),
    [(60_001, False), (60_000, True), (0, True), (-1, True), (None, True)],
)
def test_a_record_older_than_the_start_shows_that_none_behind_it_has_expired(
    kinesis: Any,
    clock: ManualClock,
    is_doubted: Callable[[], bool],
    before_ms: int | None,
    *,
    expected: bool,
) -> None:
    """Arrival times may be out of order by a minute."""
    if before_ms is not None:
        clock.advance(HOUR - before_ms)
        put(kinesis, "s", [b"older", b"next"], "k")
    clock.advance(2 * HOUR)
    put(kinesis, "s", [b"younger"], "k")
    assert is_doubted() is expected


@pytest.mark.parametrize(("pages", "expected"), [(4, False), (5, True)])
def test_an_older_record_behind_a_few_empty_pages_is_found(
    server: LocalServer, kinesis: Any, is_doubted: Callable[[], bool], pages: int, *, expected: bool
) -> None:
    """And no server is asked for ever."""
    put(kinesis, "s", [b"older"], "k")
    server.kinesis.empty_pages = pages
    assert is_doubted() is expected
    assert server.kinesis.calls.count("GetRecords") == 5


def test_a_shard_that_has_ended_without_a_record_shows_nothing(
    kinesis: Any, is_doubted: Callable[[], bool]
) -> None:
    split(kinesis, "s")
    assert is_doubted()


def test_records_without_an_arrival_time_show_nothing(
    kinesis: Any,
    client: StreamClient,
    is_doubted: Callable[[], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(kinesis, "s", [b"older"], "k")
    get_records = client.get_records

    def without_times(*given: Any) -> Fetched:
        fetched = get_records(*given)
        records = [replace(one, approximate_arrival_timestamp=None) for one in fetched.page.records]
        return replace(fetched, page=replace(fetched.page, records=records))

    monkeypatch.setattr(client, "get_records", without_times)
    assert is_doubted()


def test_the_period_of_a_loss_is_the_one_of_the_stream(
    kinesis: Any, client: StreamClient, caplog: pytest.LogCaptureFixture
) -> None:
    kinesis.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=30)
    RetentionCheck(client, fail_on_data_loss=False).report_loss(SHARD, AfterRecord("7"))
    assert "keeps records for 30 hours" in caplog.text
