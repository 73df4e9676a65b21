"""The streams that a worker reads: one, or several that come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec

from sparkinesis.errors import AccessDeniedError, ServiceError, StreamNotFoundError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.row_streams import require_single_stream
from sparkinesis.lease.shards.shard_ends import ShardEnds
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.status import StreamStatus
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from sparkinesis.stream.reading.shard_end import ClosedShards
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.reporting.gauges import StreamCounts
from sparkinesis.worker.retrieval.ahead import RetrievalMode

_ASK_AGAIN = 2.0
"""Seconds between two questions which stream has the name, while that is in doubt."""


class OpenStream(msgspec.Struct, frozen=True):
    """A stream that a worker can read: its leases exist, and its shards can be fetched."""

    settings: ConsumerSettings
    syncer: ShardSyncer
    ends: ShardEnds
    retrieval: RetrievalMode
    closed_shards: ClosedShards

    @property
    def id(self) -> StreamIdentifier | None:
        """One of several streams of the application; None: the application reads only this one."""
        return self.settings.stream


class Streams(Protocol):
    """The streams of a worker. `begin` and `update` are for one thread; the others are for any."""

    def begin(self, wait: Callable[[float], bool]) -> None:
        """Open the streams, before the worker takes leases. ``wait``: True ends the wait at once.

        Raises `StreamNotFoundError`, `LeaseTableError`, `AccessDeniedError`, `ServiceError`,
        `LeaseTableUnavailableError` or `ConsumerLimitError`.
        """

    @property
    def mark(self) -> StreamMark | None:
        """The only stream of the application; None: there are several."""
        return None

    def settle(self, leases: Collection[Lease]) -> None:
        """Check leases of the last scan that are of another stream than the one that is read.

        Raises `LeaseTableError` for those of other applications.
        """
        del leases

    def may_take(self, lease: Lease) -> bool:
        """Return True if this worker reads the stream of a lease."""
        return self.get(lease.stream) is not None

    may_change: bool = False
    """True if `update` is to be called."""

    def update(self, wait: Callable[[float], bool]) -> float:
        """Open streams that are new, and leave those that are gone.

        Returns the seconds until the next update.
        """
        del wait
        return math.inf

    def get(self, stream: StreamIdentifier | None) -> OpenStream | None:
        """Return the stream of a lease; None if the worker does not read it, or not yet."""

    def wants(self, stream: StreamIdentifier | None) -> bool:
        """Return True if a lease is of a stream of the application, which may not be open now."""

    def doubt(self, stream: StreamIdentifier | None) -> None:
        """Note an error of a reader which says that the stream no longer exists."""
        del stream

    def all(self) -> Sequence[OpenStream]:
        """Return the streams that the worker reads now."""

    def finished(self) -> Sequence[OpenStream]:
        """Return the streams to finish when the worker ends: those, and those that have left."""
        return self.all()

    def statuses(self) -> tuple[StreamStatus, ...]:
        """Return the state of each stream of an application of several."""
        return ()

    def counts(self) -> StreamCounts | None:
        """Return the streams of an application of several in numbers; None of one stream."""
        return None

    def __str__(self) -> str:
        """Return the streams' names, for log lines."""


class OnlyStream(Streams):
    """The stream of an application that reads one. Its leases name no stream."""

    def __init__(self, stream: OpenStream, table: LeaseTable) -> None:
        self._stream = stream
        self._table = table
        self._is_doubted = False
        self._ask_at = -math.inf
        """The earliest time to ask the service (again) which stream has the name."""

    @property
    def mark(self) -> StreamMark | None:
        return self._stream.syncer.mark

    def may_take(self, lease: Lease) -> bool:
        return lease.stream is None and self._is_own(lease)

    def _is_own(self, lease: Lease) -> bool:
        mark = self.mark
        return lease.mark is None or mark is None or lease.mark.is_stream(mark)

    def doubt(self, stream: StreamIdentifier | None) -> None:
        del stream
        self._is_doubted = True

    def settle(self, leases: Collection[Lease]) -> None:
        now = self._stream.settings.clock()
        is_sure = not self._is_doubted and all(map(self._is_own, leases))
        if is_sure or now < self._ask_at:
            return
        self._is_doubted, self._ask_at = False, now + _ASK_AGAIN
        try:
            self._stream.syncer.settle()
        except (StreamNotFoundError, AccessDeniedError, ServiceError):
            # Nothing is known. The stream may come back before its readers meet an error again.
            self._is_doubted = True

    def begin(self, wait: Callable[[float], bool]) -> None:
        scan = self._table.scan(consistent=True)
        require_single_stream(scan, str(self._table))
        # The leases come first: for an application that begins at the latest record, the leases
        # hold that instant, and a consumer of enhanced fan-out may take a while to become active.
        self._stream.syncer.sync(table=scan, wait=wait)
        self._stream.retrieval.prepare(wait)

    def get(self, stream: StreamIdentifier | None) -> OpenStream | None:
        return self._stream if stream is None else None

    def wants(self, stream: StreamIdentifier | None) -> bool:
        return stream is None

    def all(self) -> Sequence[OpenStream]:
        return (self._stream,)

    def __str__(self) -> str:
        return str(self._stream.settings.client.address)
