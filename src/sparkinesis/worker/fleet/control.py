"""The driver's end of the control channel: listens, and keeps a connection for each worker."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from sparkinesis.errors import FleetError
from sparkinesis.worker.fleet.channel import (
    HANDSHAKE_TIMEOUT,
    Channel,
    ChannelClosedError,
    NotAuthenticatedError,
    accept_worker,
)
from sparkinesis.worker.fleet.messages import (
    Hello,
    ToDriver,
    ToWorker,
    decode_for_driver,
    encode,
)

_log = logging.getLogger(__name__)

MAX_STRANGERS = 64
"""Connections that have not proved themselves yet; more are refused."""
_PAUSE = 0.1
"""Seconds, after a connection that could not be accepted."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A worker's connection has ended."""

    worker_id: str


OnMessage: TypeAlias = Callable[[str, "ToDriver | Disconnected"], None]
"""Is told the worker's id and what it said, in the order in which it did; from several threads, and
with a lock held: it must not wait, nor call back."""


class Control:
    """Listens from `__init__` to `close`; a thread accepts, and each connection has one."""

    def __init__(
        self,
        address: str,
        port: int,
        secret: bytes,
        on_message: OnMessage,
        *,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
    ) -> None:
        """Raises `FleetError` if the address cannot be listened on."""
        self._secret = secret
        self._handshake_timeout = handshake_timeout
        self._on_message = on_message
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._strangers = threading.BoundedSemaphore(MAX_STRANGERS)
        self._closed = threading.Event()
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((address, port), family=family)
        except OSError as error:
            raise FleetError(
                f"The driver cannot listen on {address}:{port}: {error}. Set bind, host and port "
                "of FleetOptions to what this machine has, and executors can reach."
            ) from None
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="fleet-accept", daemon=True).start()

    def send(self, worker_id: str, message: ToWorker) -> None:
        """Send to a worker, if it is connected."""
        with self._lock:
            channel = self._channels.get(worker_id)
        if channel is not None:
            _send(channel, message)

    def send_to_all(self, message: ToWorker) -> None:
        with self._lock:
            channels = list(self._channels.values())
        for channel in channels:
            _send(channel, message)

    def drop(self, worker_id: str) -> None:
        """Close a worker's connection."""
        with self._lock:
            channel = self._channels.get(worker_id)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            channels = list(self._channels.values())
        with contextlib.suppress(OSError):
            # Wakes the thread that accepts; closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for channel in channels:
            channel.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                _log.warning("Accepting a worker's connection failed: %s", error)
                # Too many open files, say: the next try would fail as well, and at once.
                self._closed.wait(_PAUSE)
                continue
            if not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="fleet-control", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending
                self._strangers.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        peer = _peer(connection)
        try:
            try:
                channel = accept_worker(connection, self._secret, self._handshake_timeout)
                hello = decode_for_driver(channel.receive())
            finally:
                self._strangers.release()
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError) as error:
            _log.warning("Refused a connection from %s: %s", peer, error)
            connection.close()
            return
        if not isinstance(hello, Hello):
            channel.close()
            return
        worker_id = hello.worker_id
        with self._lock:
            before = self._channels.pop(worker_id, None)
            if self._closed.is_set():
                channel.close()
                return
            self._channels[worker_id] = channel
            self._on_message(worker_id, hello)
        if before is not None:
            before.close()
        try:
            while True:
                message = decode_for_driver(channel.receive())
                with self._lock:
                    if self._channels.get(worker_id) is not channel:
                        break  # it has come again, and said newer things
                    self._on_message(worker_id, message)
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError) as error:
            _log.debug("The connection of %s has ended: %s", worker_id, error)
        channel.close()
        with self._lock:
            if self._channels.get(worker_id) is channel:  # it has not come again
                del self._channels[worker_id]
                self._on_message(worker_id, Disconnected(worker_id))


def _send(channel: Channel, message: ToWorker) -> None:
    with contextlib.suppress(ChannelClosedError):  # the thread that receives tells of the end
        channel.send(encode(message))


def _peer(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return "a peer that is gone"
