"""The lags that are kept of a lease."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.lags import Lag, LagStreams
from sparkinesis.monitor.lease_monitor import LagWatch
from sparkinesis.stream.address import StreamAddress, address_of
from sparkinesis.stream.calls.client import StreamClient


def test_a_finished_shard_has_no_lag_and_needs_no_call() -> None:
    """Also right after its end, when the last lag that was read of it is not old."""
    lease = Lease("s-1", "s-1", ExtendedSequenceNumber("SHARD_END"))
    with LagWatch(LagStreams(None, address_of, StreamClient)) as watch:
        watch.ask_for([lease])
        assert watch.known() == {"s-1": Lag()}


def test_an_error_that_is_raised_at_each_look_does_not_grow() -> None:
    watch = LagWatch(LagStreams(None, address_of, StreamClient))
    watch._fail(AccessDeniedError("not you"))
    depths = []
    for _ in range(3):
        with pytest.raises(AccessDeniedError) as caught:
            watch.known()
        depths.append(len(caught.traceback))
    assert len(set(depths)) == 1


def test_a_lease_that_is_no_longer_wanted_is_not_read() -> None:
    client = StreamClient(StreamAddress("s", None, "us-east-1"))
    streams = cast(LagStreams, SimpleNamespace(of=lambda _: client))
    leases = [Lease(f"s-{n}", f"s-{n}", ExtendedSequenceNumber("5")) for n in range(3)]
    watch = LagWatch(streams, clock=lambda: 100.0)
    watch.ask_for(leases)
    assert watch._next() == (leases[0], client)
    watch.ask_for(leases[:1] + leases[2:])
    assert watch._next() == (leases[2], client), "the first one is being read"
    watch._learn("s-0", Lag(7), 100.0)
    watch.ask_for([])
    assert watch._turns.pause(100.0) is None
    assert watch.known() == {}


def test_the_last_lag_is_kept_for_half_a_minute_while_it_cannot_be_read() -> None:
    now = [100.0]
    client = StreamClient(StreamAddress("s", None, "us-east-1"))
    streams = cast(LagStreams, SimpleNamespace(of=lambda _: client))
    watch = LagWatch(streams, clock=lambda: now[0])
    watch.ask_for([Lease("s-0", "s-0", ExtendedSequenceNumber("5"))])
    read, failed = Lag(7), Lag(why="the calls are throttled")
    for at, lag, known in ((100.0, read, read), (129.9, failed, read), (130.0, failed, failed)):
        now[0] = at
        watch._learn("s-0", lag, at)
        assert watch.known() == {"s-0": known}
