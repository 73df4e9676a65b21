"""The messages between a fleet's driver and its workers, and their encoding."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec

from sparkinesis.worker.crew.messages import Ended, Leaving, Report, ShutDown


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A worker's first message on each connection."""

    worker_id: str
    slot: int
    job: int
    """The fleet's own number of the job, from 1; not Spark's job id."""
    attempt: int
    """The attempt number of the Spark task, from 0."""
    host: str
    pid: int
    stage_id: int
    task_attempt_id: int
    """Spark's task attempt id, by which the driver finds the executor."""
    is_running: bool = False
    """The worker was told to start on an earlier connection."""
    is_leaving: bool = False
    """The worker is shutting down, or about to."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Orders a worker to start and take leases."""


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Orders a worker to stay a standby until further notice."""


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
        raise msgspec.DecodeError(f"The bytes received are not a valid message: {error}") from None
