"""The messages of a worker to who leads it, and the order that ends the worker."""

from __future__ import annotations

import msgspec

from sparkinesis.metrics.tally import Series
from sparkinesis.status import Failure, ShardStatus, StreamStatus


class Introduction(msgspec.Struct, frozen=True, kw_only=True, tag="introduction"):
    """A worker's first message: who it is, and where."""

    worker_id: str
    slot: int
    host: str
    pid: int


class Report(msgspec.Struct, frozen=True, tag="report"):
    """A worker's heartbeat."""

    shards: tuple[ShardStatus, ...]
    records: int
    """User records processed since the worker started."""
    is_running: bool = False
    """The worker has started and takes leases."""
    failures: tuple[Failure, ...] = ()
    """Failures that are new, or occurred again, since the last report."""
    problem: str | None = None
    """The reason why the worker can hold no leases now."""
    unread: dict[str, float] | None = None
    """The shards that no live worker reads by the lease table, and for how many seconds, by lease
    key; the longest ones of many. None if the worker does not know."""
    streams: tuple[StreamStatus, ...] | None = None
    """The streams of an application of several; None if they are as the worker has reported them
    before on this connection."""
    not_live: tuple[str, ...] = ()
    """Which loops and pools of the worker stand still or have died."""
    not_ready: tuple[str, ...] = ()
    """Why the worker does not see the lease table now."""
    series: tuple[Series, ...] | None = None
    """The worker's metrics since its start; None if this report has none."""


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """A worker shuts down gracefully on its own initiative."""

    why: str
    is_for_all: bool = False
    """A record processor requested the shutdown of the whole application."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A worker's last message: its leases are released, its task ends next."""

    was_graceful: bool
    error: str | None = None
    """The error that ended the worker or kept it from starting."""
    is_transient: bool = False
    """A retry may succeed."""


class ShutDown(msgspec.Struct, frozen=True, tag="shut down"):
    """Orders a worker to shut down gracefully within ``timeout`` seconds."""

    timeout: float


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The error that ended a worker process, for its supervisor to raise."""

    pickled: bytes
    """b"" if it cannot be pickled."""
    text: str
