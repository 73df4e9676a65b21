"""The lags that are kept of a lease."""

from __future__ import annotations

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.lag_streams import LagStreams
from sparkinesis.monitor.lag_watch import LagWatch
from sparkinesis.monitor.lags import Lag
from sparkinesis.stream.address import address_of
from sparkinesis.stream.calls.client import StreamClient


def test_a_finished_shard_has_no_lag_and_needs_no_call() -> None:
    """Also right after its end, when the last lag that was read of it is not old."""
    lease = Lease("s-1", "s-1", ExtendedSequenceNumber("SHARD_END"))
    with LagWatch(LagStreams(None, address_of, StreamClient)) as watch:
        watch.ask_for([lease])
        assert watch.known() == {"s-1": Lag()}
