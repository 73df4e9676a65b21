"""The lag of each lease's shard, and the clients of the streams by which the lags are read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from msgspec.structs import replace

from sparkinesis.errors import (
    AccessDeniedError,
    PositionNotFoundError,
    ServiceError,
    ShardNotFoundError,
    SparkinesisError,
    StreamNotFoundError,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.watched import (
    AT_SHARD_END,
    EXPIRED,
    GONE,
    MADE_ANEW,
    NO_STREAM,
    WatchedTable,
    lag_position,
)
from sparkinesis.stream import position as pos
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.stream_identity import StreamIdentity, identify
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.position import AfterRecord
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.reading.shard_end import EndCheck

_SCANS = 1.0
"""Seconds between two scans."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a checkpoint behind the tip of its shard."""

    millis_behind_latest: int | None = None
    """The lag in milliseconds; None if unknown."""
    why: str = ""
    """The reason why the lag is unknown; empty if there is no error."""
    lost: str = ""
    """The records that have expired unread behind the checkpoint, as a sentence; then ``why`` is
    `EXPIRED`, and the lag is that of the checkpoint, as if nothing were lost."""


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
        scan_began = clock()
        scan = table.scan(consistent=False)
        if watched.began is None:
            check(scan)
        watched = watched.after_scan(scan.leases, scan_began, scan.broken)
        # The scan of a large table takes long, so it is repeated less often.
        pause = max(_SCANS, 4 * (clock() - scan_began))
        if scan_began >= began + seconds:
            return watched
        wait(max(0.0, min(pause, began + seconds - clock())))


def lag_client(address: StreamAddress, give_up_after: float = 20.0) -> StreamClient:
    """Return a client that calls each operation at most twice a second for a shard.

    Its retries are at least half a second apart: consumers of the shard need the other calls.
    ``give_up_after``: seconds after which a call is no longer retried.
    """
    return StreamClient(
        address,
        Backoff(base=0.5, cap=5.0, give_up_after=give_up_after, uniform=lambda _, high: high),
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
    """Return the epoch ms up to which all is read, by the lease's row; 0: it does not say."""
    known = lease.known if isinstance(lease.known, AfterRecord) else None
    return 0 if known is None else max(known.arrived_ms or 0, known.clear_until or 0)


def _loss(client: StreamClient, lease: Lease, fetched: Fetched) -> str:
    """Return the loss behind a checkpoint whose own record is gone; "" if no loss is known.

    By the rule of the worker that resumes there. A row without times, such as a KCL's, does not
    say whether a record came since. Raises the errors of `StreamClient.describe`.
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


UNFOUND = Lag(why="stream not found yet")
_EVERY = 60.0
"""Seconds after which a stream is asked for again: it may be back, or made anew."""
_PER_STREAM = 0.5
"""Seconds, for each stream, that lie at least between two rounds: an account may call
DescribeStreamSummary 20 times a second, and workers do."""
_SOON = 5.0
"""Seconds after which a stream is asked for again if a lease names a newer one."""


@dataclass(frozen=True, slots=True)
class _Answer:
    identity: StreamIdentity | SparkinesisError
    at: float


class LagStreams:
    """The clients that read the lags of a table's leases.

    Any thread may call; `find` is for one thread at a time.

    only: the client for leases that name no stream; None: their lags are not read. address_of:
    returns the address of a stream that a lease names. new_client: makes a client.
    """

    def __init__(
        self,
        only: StreamClient | None,
        address_of: Callable[[StreamIdentifier], StreamAddress],
        new_client: Callable[[StreamAddress], StreamClient],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._only = only
        self._address_of = address_of
        self._new_client = new_client
        self._clock = clock
        self._wait = wait
        self._answers: dict[StreamAddress, _Answer] = {}
        self._clients: dict[StreamAddress, StreamClient] = {}

    def find(self, leases: Iterable[Lease]) -> Iterator[None]:
        """Ask for the streams of leases that are due to be asked for; yield after each answer.

        Makes a ListStreams call for each thousand streams, or a DescribeStreamSummary call for
        each. Raises nothing: `of` returns the errors.
        """
        due = self._due(leases)
        for address, result in identify(due, self._client, self._clock, self._wait):
            self._answers[address] = _Answer(result, self._clock())
            yield

    def of(self, lease: Lease) -> StreamClient | Lag | None:
        """Return the client that reads a lease's lag, or the reason why there is none.

        None: the lags of leases without a stream are not read. `UNFOUND`: the stream is not found
        yet.
        """
        stream = lease.stream
        if stream is None:
            return self._only
        address = self._address_of(stream)
        answer = self._answers.get(address)
        if answer is None:
            return UNFOUND
        if isinstance(answer.identity, StreamNotFoundError):
            return Lag(why=NO_STREAM)
        if isinstance(answer.identity, SparkinesisError):
            return Lag(why=str(answer.identity))
        is_same = answer.identity.identifier == stream
        return self._client(address) if is_same else Lag(why=MADE_ANEW)

    def _due(self, leases: Iterable[Lease]) -> Collection[StreamAddress]:
        newest: dict[StreamAddress, int] = {}
        for stream in {lease.stream for lease in leases} - {None}:
            assert stream is not None
            address = self._address_of(stream)
            newest[address] = max(newest.get(address, 0), stream.creation_epoch)
        now, pause = self._clock(), max(_EVERY, _PER_STREAM * len(newest))
        return [
            address
            for address, epoch in newest.items()
            if now - self._asked_at(address) >= (_SOON if self._is_older(address, epoch) else pause)
        ]

    def _asked_at(self, address: StreamAddress) -> float:
        answer = self._answers.get(address)
        return -math.inf if answer is None else answer.at

    def _is_older(self, address: StreamAddress, epoch: int) -> bool:
        answer = self._answers.get(address)
        return (
            answer is not None
            and isinstance(answer.identity, StreamIdentity)
            and answer.identity.identifier.creation_epoch < epoch
        )

    def _client(self, address: StreamAddress) -> StreamClient:
        # Two threads may make a client at the same time: each of them serves.
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._new_client(address)
        return client
