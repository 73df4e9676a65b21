"""U3: what is told from outside of a checkpoint behind which records have expired unread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.local import LocalServer
from sparkinesis.monitor.lags import Lag, lag_of
from sparkinesis.worker.lifecycle.worker import Worker
from tests.command import call, objects, place_of
from tests.integration.worker.scene import checkpoint
from tests.integration.worker.test_expired import application_on
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put, records_of
from tests.timed_stream import HOUR, SHARDS, TimedStream


@pytest.fixture
def read(one: TimedStream, start: Callable[[Application], Worker]) -> Callable[[bytes], Lease]:
    """Has a worker process and checkpoint a record; returns the lease once it is released."""

    def read(data: bytes) -> Lease:
        journal = Journal()
        processor = lambda: Journaling(journal, checkpoint)  # noqa: E731
        worker = start(application_on(one, processor))
        journal.wait_for_data(data)
        assert worker.shutdown(PATIENCE)
        row = one.table.get(SHARDS[0])
        assert row is not None
        return row

    return read


def behind(one: TimedStream, row: Lease) -> Lag:
    return lag_of(one.client, row)


def test_records_that_expired_unread_are_told_and_how_far(
    one: TimedStream, read: Callable[[bytes], Lease], timed: LocalServer
) -> None:
    """The first record that is left is young: its age is not the lag."""
    put(one.kinesis, one.name, [b"done"], "k")
    row = read(b"done")
    put(one.kinesis, one.name, [b"lost"], "k")
    one.clock.advance(30 * HOUR)
    put(one.kinesis, one.name, [b"kept"], "k")
    one.clock.advance(4_400)
    lag = behind(one, row)
    assert lag.why == "expired"
    assert lag.millis_behind_latest is not None
    assert lag.millis_behind_latest >= 30 * HOUR
    assert "were removed before they were read" in lag.lost
    assert "the first one left arrived 2026-" in lag.lost
    options = ("--stream", one.name, "--region", "us-east-1", *place_of(timed)[-2:])
    (found,) = objects(call("leases", one.name, *options, "--watch-for", "0", "--json"))
    assert found["lag_unknown_because"] == "expired"
    assert found["lost_unread"] == lag.lost
    done = call("doctor", one.name, *options, "--json")
    (problem,) = (each for each in objects(done, 1) if each["check"] == "lost records")
    assert problem["state"] == "problem"
    assert lag.lost in problem["what"]
    shown = call("top", one.name, *options, "--once")
    assert "30.0 h" in shown.stdout
    assert lag.lost in " ".join(shown.stdout.split())


def test_a_quiet_shard_has_lost_nothing(
    one: TimedStream, start: Callable[[Application], Worker], read: Callable[[bytes], Lease]
) -> None:
    put(one.kinesis, one.name, [b"done"], "k")
    row = read(b"done")
    assert behind(one, row) == Lag(0)
    one.clock.advance(23 * HOUR)
    put(one.kinesis, one.name, [b"next"], "k")
    one.clock.advance(1_500)
    assert behind(one, row) == Lag(1_500)


def test_a_row_without_times_does_not_tell_of_a_loss(one: TimedStream) -> None:
    """As of a KCL: the shard may have been quiet for as long as the checkpoint is old."""
    one.shard_syncer().sync()
    put(one.kinesis, one.name, [b"done"], "k")
    (done,) = records_of(one.kinesis, one.name, SHARDS[0])
    one.checkpoint(0, ExtendedSequenceNumber(done["SequenceNumber"]))
    one.clock.advance(30 * HOUR)
    put(one.kinesis, one.name, [b"next"], "k")
    one.clock.advance(4_400)
    row: Any = one.table.get(SHARDS[0])
    assert behind(one, row) == Lag(4_400)


def test_the_lag_is_the_age_of_the_first_record_behind_the_checkpoint(one: TimedStream) -> None:
    one.shard_syncer().sync()
    put(one.kinesis, one.name, [b"done"], "k")
    (done,) = records_of(one.kinesis, one.name, SHARDS[0])
    one.checkpoint(0, ExtendedSequenceNumber(done["SequenceNumber"]))
    row: Any = one.table.get(SHARDS[0])
    for _ in range(3):
        one.clock.advance(1_000)
        put(one.kinesis, one.name, [b"next"], "k")
    lag = behind(one, row).millis_behind_latest
    assert lag is not None
    assert lag >= 2_000
