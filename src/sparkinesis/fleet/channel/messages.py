"""What a fleet's driver and its workers tell each other."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec

from sparkinesis.worker.status import Failure, ShardStatus


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker's first message on each connection."""

    worker_id: str
    slot: int
    job: int
    """Of the fleet, counted from 1: not Spark's number for it."""
    attempt: int
    """Its task's, from 0."""
    host: str
    pid: int
    stage_id: int
    task_attempt_id: int
    """Spark's, so that the driver finds the executor."""
    is_running: bool = False
    """It was told to start on an earlier connection."""
    is_leaving: bool = False
    """It shuts down, or is about to."""


class Report(msgspec.Struct, frozen=True, tag="report"):
    """A worker's heartbeat."""

    shards: tuple[ShardStatus, ...]
    records: int
    """User records processed since the worker started."""
    is_running: bool = False
    """It takes leases: it has started."""
    failures: tuple[Failure, ...] = ()
    """Those that are new, or were met again, since the last report."""


class Leaving(msgspec.Struct, frozen=True, tag="leaving"):
    """A worker shuts down gracefully, without having been told to."""

    why: str
    is_for_all: bool = False
    """A record processor asked for the application's shutdown."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A worker's last message: its leases are released, its task is about to end."""

    was_graceful: bool
    error: str | None = None
    """What ended the worker, or kept it from starting."""
    is_transient: bool = False
    """The error is one that trying again may help against."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Begin to take leases."""


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Be a standby, until told otherwise."""


class ShutDown(msgspec.Struct, frozen=True, tag="shut down"):
    """Shut down gracefully, within seconds."""

    timeout: float


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """The driver's heartbeat."""


ToDriver: TypeAlias = Hello | Report | Leaving | Ended
ToWorker: TypeAlias = Start | Wait | ShutDown | Ping

_M = TypeVar("_M")
_encoder = msgspec.msgpack.Encoder()
_to_driver: msgspec.msgpack.Decoder[ToDriver] = msgspec.msgpack.Decoder(ToDriver)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def encode(message: ToDriver | ToWorker) -> bytes:
    return _encoder.encode(message)


def decode_for_driver(data: bytes) -> ToDriver:
    """Raises msgspec.DecodeError."""
    return _decode(_to_driver, data)


def decode_for_worker(data: bytes) -> ToWorker:
    """Raises msgspec.DecodeError."""
    return _decode(_to_worker, data)


def _decode(decoder: msgspec.msgpack.Decoder[_M], data: bytes) -> _M:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"It is no message: {error}") from None
