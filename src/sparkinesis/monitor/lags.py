"""The lag of a lease, and a lease table that is watched for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sparkinesis.errors import (
    AccessDeniedError,
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.watched import (
    AT_SHARD_END,
    EXPIRED,
    GONE,
    WatchedTable,
    lag_position,
)
from sparkinesis.stream import position as pos
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.reading.shard_end import EndCheck

_LOOKS = 1.0
"""Seconds between two scans."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a checkpoint behind the tip of its shard."""

    millis_behind_latest: int | None = None
    """The lag in milliseconds; None if unknown."""
    why: str = ""
    """The reason why the lag is unknown; empty if there is no error."""


def watch_table(
    table: LeaseTable,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
    check: Callable[[TableScan], object] = lambda _: None,
) -> WatchedTable:
    """Scan the table every second; the last scan begins ``seconds`` after the first one. 0: once.

    ``check``: called with the first scan, before the wait.

    Raises `LeaseTableError`, `AccessDeniedError`, `LeaseTableUnavailableError` and the errors of
    ``check``.
    """
    began = clock()
    watched = WatchedTable()
    while True:
        looked = clock()
        scan = table.scan(consistent=False)
        if watched.began is None:
            check(scan)
        watched = watched.after_scan(scan.leases, looked, scan.broken)
        # The scan of a large table takes long, so it is repeated less often.
        pause = max(_LOOKS, 4 * (clock() - looked))
        if looked >= began + seconds:
            return watched
        wait(max(0.0, min(pause, began + seconds - clock())))


def lag_client(address: StreamAddress, give_up_after: float = 20.0) -> StreamClient:
    """Return a client that calls each operation at most twice a second for a shard.

    Its retries are at least half a second apart: consumers of the shard need the other calls.
    ``give_up_after``: seconds after which a call is no longer retried.
    """
    return StreamClient(
        address, Retry(base=0.5, cap=5.0, give_up_after=give_up_after, uniform=lambda _, high: high)
    )


def lag_of(client: StreamClient, lease: Lease) -> Lag:
    """Return the lag of a lease of the client's stream.

    The lag counts whole records: the user records left in a partly processed aggregate do not
    count. The service reports 0 already with the page that holds the last record. That record is
    not processed yet, so its age is the lag. A closed shard may be processed to its end although
    its lease is not finished: the next records are in other shards, and the lag is unknown.

    Raises `AccessDeniedError` for a lease that names no stream: it is the application's only one.
    One of several that may not be read says so in its lag.
    """
    position = lag_position(lease)
    if position is None:
        return Lag()
    if position is pos.LATEST:
        return Lag(0)
    try:
        iterator = client.shard_iterator(lease.shard_id, position)
        fetched = client.get_records(lease.shard_id, iterator, 1)
    except PositionNotFoundError:
        return Lag(why=EXPIRED)
    except ShardNotFoundError:
        return Lag(why=GONE)
    except ServiceError as error:
        return Lag(why=str(error))
    except AccessDeniedError as error:
        if lease.stream is None:
            raise
        return Lag(why=str(error))
    page = fetched.page
    if not page.records and EndCheck(client, lease.shard_id).is_end(fetched, position):
        return Lag(why=AT_SHARD_END)
    if page.records and page.millis_behind_latest == 0:
        arrival = page.records[0].approximate_arrival_timestamp
        if arrival is not None:
            return Lag(max(1, fetched.service_time_ms - round(arrival * 1000)))
    return Lag(page.millis_behind_latest)
