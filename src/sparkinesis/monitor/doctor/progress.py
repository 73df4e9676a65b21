"""Whether the shards of an application make progress, by their checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.finding import Finding, note, ok
from sparkinesis.monitor.doctor.service import RETRY
from sparkinesis.monitor.lags import lag_client, lag_of
from sparkinesis.stream.address import StreamAddress

_MOST_SHARDS = 100
"""The most shards whose first records are read: each takes two calls."""
_SECOND_LOOK = 5.0
"""Seconds until the table is looked at again, if a shard is late."""


def checks(
    table: LeaseTable,
    streams: Sequence[StreamAddress],
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Finding]:
    """Yield what is lost unread, and which shards stand still. Nothing is written.

    Reads a record or two at each checkpoint, as `sparkinesis leases` does. Says nothing of a call
    that is refused: another check does.
    """
    late: dict[str, int] = {}
    try:
        before = table.scan(RETRY).leases
        of_streams = [
            (address, lease)
            for address in streams
            for lease in before
            if not lease.is_finished and (lease.stream is None or lease.stream.name == address.name)
        ]
        clients = {address: lag_client(address, give_up_after=5.0) for address in streams}
        is_well = True
        for address, lease in of_streams[:_MOST_SHARDS]:
            lag = lag_of(clients[address], lease)
            if lag.lost:
                is_well = False
                yield judge.lost(lease.key, lag.lost)
            elif (lag.millis_behind_latest or 0) >= judge.LATE_MS:
                late[lease.key] = lag.millis_behind_latest or 0
        if late:
            wait(_SECOND_LOOK)
            found = judge.standing(late, before, table.scan(RETRY).leases)
            if found is not None:
                is_well = False
                yield found
    except SparkinesisError:
        return
    if is_well and of_streams:
        yield ok("progress", "no shard stands still, and nothing has expired unread")
    if len(of_streams) > _MOST_SHARDS:
        yield note("progress", f"of {len(of_streams)} shards, {_MOST_SHARDS} were looked at")
