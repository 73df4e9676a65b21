"""The lag of a lease, and a lease table that is watched for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from msgspec.structs import replace

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
from sparkinesis.stream.calls.client import Fetched, StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.position import AfterRecord
from sparkinesis.stream.reading.retention import RetentionCheck
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
    lost: str = ""
    """What has expired unread behind the checkpoint, as a sentence; then ``why`` is `EXPIRED`, and
    the lag is that of the checkpoint, as if nothing were lost."""


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
    count. It is never less than the age of the first record behind the checkpoint: the service
    reports 0 already with the page that holds the last record, which is not processed yet. A closed
    shard may be processed to its end although its lease is not finished: the next records are in
    other shards, and the lag is unknown.

    Raises `AccessDeniedError` for a lease that names no stream: it is the application's only one.
    One of several that may not be read says so in its lag.
    """
    position = lag_position(lease)
    if position is None:
        return Lag()
    if position is pos.LATEST:
        return Lag(0)
    done = position.sequence_number if isinstance(position, AfterRecord) else None
    try:
        # AT the checkpoint's record: if it is gone, records behind it may be gone as well.
        iterator = client.shard_iterator(lease.shard_id, position, inclusive=True)
        fetched = client.get_records(lease.shard_id, iterator, 1 if done is None else 2)
        page = fetched.page
        has_own = (
            done is not None and bool(page.records) and page.records[0].sequence_number == done
        )
        lost = "" if done is None or has_own else _loss(client, lease, fetched)
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
    if lost:
        return Lag(fetched.service_time_ms - _known_until(lease), EXPIRED, lost)
    left = page.records[1:] if has_own else page.records
    if not left and EndCheck(client, lease.shard_id).is_end(fetched, position):
        return Lag(why=AT_SHARD_END)
    figure = page.millis_behind_latest
    if not left or (arrived_ms := left[0].arrived_ms) is None:
        return Lag(figure)
    return Lag(max(figure or 0, fetched.service_time_ms - arrived_ms, 1))


def _known_until(lease: Lease) -> int:
    """Return up to when a lease's row says that all is read (epoch ms); 0: it does not say."""
    known = lease.known if isinstance(lease.known, AfterRecord) else None
    return 0 if known is None else max(known.arrived_ms or 0, known.clear_until or 0)


def _loss(client: StreamClient, lease: Lease, fetched: Fetched) -> str:
    """Return what is lost behind a checkpoint whose own record is gone; "" if nothing is known to.

    By the rule of the worker that resumes there. A row without times, such as a KCL's, does not
    tell whether a record came since. Raises the errors of `StreamClient.describe`.
    """
    position = lease.position()
    until_ms = _known_until(lease)
    if not isinstance(position, AfterRecord) or not until_ms:
        return ""
    found: list[str] = []
    check = RetentionCheck(client, on_loss=found.append)
    check.check_start(lease.shard_id, replace(position, sub_sequence_number=None), fetched)
    first = fetched.page.records[0].arrived_ms if fetched.page.records else None
    left = "no record is left" if first is None else f"the first one left arrived {_when(first)}"
    return f"{found[0]} All up to {_when(until_ms)} was read, and {left}." if found else ""


def _when(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
