"""The pipe between the supervisor and a worker process, which closes when either of them ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeAlias

import msgspec

from sparkinesis.worker.crew.messages import (
    Ended,
    Introduction,
    Leaving,
    Raised,
    Report,
    ShutDown,
)

ToSupervisor: TypeAlias = Introduction | Report | Leaving | Raised | Ended

_encoder = msgspec.msgpack.Encoder()
_to_supervisor: msgspec.msgpack.Decoder[ToSupervisor] = msgspec.msgpack.Decoder(ToSupervisor)
_to_worker: msgspec.msgpack.Decoder[ShutDown] = msgspec.msgpack.Decoder(ShutDown)


def read_workers(pipe: Connection, on_message: Callable[[ToSupervisor], None]) -> None:
    """Read the messages of a worker process until it has ended."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            on_message(_to_supervisor.decode(pipe.recv_bytes()))


def order(pipe: Connection, message: ShutDown) -> None:
    """Send an order to a worker process, which may have ended."""
    with contextlib.suppress(OSError):
        pipe.send_bytes(_encoder.encode(message))


class SupervisorLink:
    """A worker process' end of the pipe. `read` is for a thread of its own."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._is_lost = False
        self.connections = 1

    def read(self, on_order: Callable[[ShutDown], None]) -> None:
        """Read the supervisor's orders until it has ended."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                on_order(_to_worker.decode(self._pipe.recv_bytes()))
        self._is_lost = True

    def why_lost(self) -> str | None:
        return "the supervisor of this process has ended" if self._is_lost else None

    def send(self, message: ToSupervisor) -> bool:
        """Send a message; return False if the supervisor has ended."""
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(_encoder.encode(message))
            return True
        return False

    def send_last(self, message: Callable[[], Report | Ended]) -> None:
        """Send a message; a pipe is not connected again."""
        self.send(message())
