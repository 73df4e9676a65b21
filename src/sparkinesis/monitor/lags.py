"""Watches a lease table for a while, and reads the lags of its leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sparkinesis.errors import (
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.watched import AT_SHARD_END, EXPIRED, GONE, WatchedTable, lag_position
from sparkinesis.stream import position as pos
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry

_LOOKS = 1.0
"""Seconds between two scans."""
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a checkpoint behind the tip of its shard."""

    millis_behind_latest: int | None = None
    """None if unknown."""
    why: str = ""
    """The reason why the lag is unknown; empty if there is no error."""


def watch_table(
    table: LeaseTable,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> WatchedTable:
    """Scan the table every second for ``seconds``; 0: once.

    Raises `LeaseTableError`, `AccessDeniedError` and `LeaseTableUnavailableError`.
    """
    began = clock()
    watched = WatchedTable()
    while True:
        looked = clock()
        scan = table.scan(consistent=False)
        watched = watched.after_scan(scan.leases, looked, scan.broken)
        # A large table is looked at less often.
        pause = max(_LOOKS, 4 * (clock() - looked))
        left = began + seconds - clock()
        if left <= 0:
            return watched
        wait(min(pause, left))


def lag_client(address: StreamAddress, give_up_after: float = 20.0) -> StreamClient:
    """A client that never makes more than two calls of a kind a second for a shard.

    Its retries are half a second apart at least: consumers of the shard need the other calls.
    ``give_up_after``: seconds that a call is tried for.
    """
    return StreamClient(
        address, Retry(base=0.5, cap=5.0, give_up_after=give_up_after, uniform=lambda _, high: high)
    )


def lags(client: StreamClient, leases: Iterable[Lease]) -> dict[str, Lag]:
    """The lag of each lease of the stream, by its key: one GetShardIterator and GetRecords each.

    Raises `StreamNotFoundError` and `AccessDeniedError`.
    """
    mine = of_stream(leases, client.address.name)
    with ThreadPoolExecutor(_THREADS, "lag") as pool:
        found = pool.map(lambda lease: lag_of(client, lease), mine)
        return {lease.key: lag for lease, lag in zip(mine, found, strict=True)}


def of_stream(leases: Iterable[Lease], stream: str | None) -> list[Lease]:
    """The leases of a stream's shards, in the table of an application that may read several."""
    return [one for one in leases if one.stream is None or one.stream.name == stream]


def lag_of(client: StreamClient, lease: Lease) -> Lag:
    """The lag of a lease of the client's stream; raises as `lags` does.

    Of whole records: those left in an aggregated record that is done in part do not count.
    At the tip, the service says 0 with the very page that holds the last record. Nobody has
    processed that, so it counts from its arrival. All of a closed shard may be done, and its lease
    not be finished: then what follows lies in other shards, and how much that is, is not known.
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
    page = fetched.page
    if not page.records and page.next_shard_iterator is None:
        return Lag(why=AT_SHARD_END)
    if page.records and page.millis_behind_latest == 0:
        arrival = page.records[0].approximate_arrival_timestamp
        if arrival is not None:
            return Lag(max(1, fetched.service_time_ms - round(arrival * 1000)))
    return Lag(page.millis_behind_latest)
