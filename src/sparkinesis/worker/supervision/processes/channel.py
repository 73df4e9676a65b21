"""The pipe between the supervisor and a worker process, which closes when either of them ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from multiprocessing.connection import Connection

from sparkinesis.worker.supervision.messages import (
    Ended,
    Report,
    ToSupervisor,
    ToWorker,
    decode_for_supervisor,
    decode_for_worker,
    encode,
)


def read_worker(pipe: Connection, on_message: Callable[[ToSupervisor], None]) -> None:
    """Read the messages of a worker process until it has ended."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            on_message(decode_for_supervisor(pipe.recv_bytes()))


def order(pipe: Connection, message: ToWorker) -> None:
    """Send an order to a worker process, which may have ended."""
    with contextlib.suppress(OSError):
        pipe.send_bytes(encode(message))


class SupervisorLink:
    """A worker process' end of the pipe. `read` is for a thread of its own."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._is_lost = False
        self.connections = 1

    def read(self, on_order: Callable[[ToWorker], None]) -> None:
        """Read the supervisor's orders until it has ended."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                on_order(decode_for_worker(self._pipe.recv_bytes()))
        self._is_lost = True

    def why_lost(self) -> str | None:
        return "the supervisor of this process has ended" if self._is_lost else None

    def send(self, message: ToSupervisor) -> bool:
        """Send a message; return False if the supervisor has ended."""
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(encode(message))
            return True
        return False

    def send_last(self, message: Callable[[], Report | Ended]) -> None:
        """Send a message; a pipe is not connected again."""
        self.send(message())
