"""Streams on a clock of the test's, and their applications' tables (`tests.timed_stream`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.local.lease_tables import LeaseTables
from tests.timed_stream import START, TimedStream


@pytest.fixture(scope="module")
def timed_clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(scope="module")
def timed(timed_clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(lease_tables=LeaseTables(), limits=False, clock=timed_clock) as running:
        yield running


@pytest.fixture
def one(timed: LocalServer, timed_clock: ManualClock) -> TimedStream:
    """A stream with one shard."""
    return TimedStream(timed, timed_clock, 1)


@pytest.fixture
def two(timed: LocalServer, timed_clock: ManualClock) -> Iterator[TimedStream]:
    """A stream with two shards. The server's faults end with the test."""
    yield TimedStream(timed, timed_clock, 2)
    timed.kinesis.faults = None
