"""The messages between a worker and its supervisor, and their encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from sparkinesis.metrics.tally import Series
from sparkinesis.status import Failure, ShardStatus, StreamStatus


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker's first message on each connection."""

    worker_id: str
    slot: int
    job: int
    """The supervisor's number of the launch that made the worker, from 1; not Spark's job id."""
    attempt: int
    """The attempt number of the Spark task, from 0; 0 for a process."""
    host: str
    pid: int
    stage_id: int = 0
    task_attempt_id: int = 0
    """Spark's task attempt id, by which the driver finds the executor; 0 for a process."""
    is_running: bool = False
    """The worker was ordered to start on an earlier connection."""
    is_leaving: bool = False
    """The worker is shutting down, or about to."""


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


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The error that ended a worker process, for its supervisor to raise; before `Ended`."""

    pickled: bytes
    """b"" if it cannot be pickled."""
    text: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A worker's last message: its leases are released, its task or process ends next."""

    was_graceful: bool
    error: str | None = None
    """The error that ended the worker or kept it from starting."""
    is_transient: bool = False
    """A retry may succeed."""
    is_for_all: bool = False
    """The error ends the application: any other worker would meet it."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Orders a worker to start and take leases."""


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Orders a worker to stay a standby until further notice."""


class ShutDown(msgspec.Struct, frozen=True, tag="shut down"):
    """Orders a worker to shut down gracefully within ``timeout`` seconds."""

    timeout: float


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """The supervisor's heartbeat."""


ToSupervisor: TypeAlias = Hello | Report | Leaving | Raised | Ended
ToWorker: TypeAlias = Start | Wait | ShutDown | Ping


class Disconnected(msgspec.Struct, frozen=True):
    """The event that the connection of a worker was closed. It is never sent."""


_M = TypeVar("_M")
encode: Callable[[ToSupervisor | ToWorker], bytes] = msgspec.msgpack.Encoder().encode
_to_supervisor: msgspec.msgpack.Decoder[ToSupervisor] = msgspec.msgpack.Decoder(ToSupervisor)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def decode_for_supervisor(data: bytes) -> ToSupervisor:
    """Raises msgspec.DecodeError."""
    return _decode(_to_supervisor, data)


def decode_for_worker(data: bytes) -> ToWorker:
    """Raises msgspec.DecodeError."""
    return _decode(_to_worker, data)


def _decode(decoder: msgspec.msgpack.Decoder[_M], data: bytes) -> _M:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"The bytes received are not a valid message: {error}") from None
