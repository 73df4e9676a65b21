"""The lags that are kept of a lease."""

from __future__ import annotations

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.lag_watch import LagWatch
from sparkinesis.monitor.lags import Lag, LagStreams
from sparkinesis.stream.address import address_of
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
