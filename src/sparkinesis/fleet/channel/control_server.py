"""The driver's end of the control channel: listens, and keeps a connection for each worker."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from sparkinesis.errors import FleetError
from sparkinesis.fleet.channel.channel import (
    HANDSHAKE_TIMEOUT,
    Channel,
    ChannelClosedError,
    accept_worker,
)
from sparkinesis.fleet.channel.messages import (
    Hello,
    ToDriver,
    ToWorker,
    decode_for_driver,
    encode,
)
from sparkinesis.fleet.channel.pending import PendingConnection, PendingConnections
from sparkinesis.fleet.channel.tls import DriverIdentity, NotAuthenticatedError

_log = logging.getLogger(__name__)

_PAUSE = 0.1
"""Seconds, after a connection that could not be accepted."""
_LOG_INTERVAL = 60.0
"""Seconds between two lines of the log about strangers that said nothing."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A worker's connection has ended."""

    worker_id: str


OnMessage: TypeAlias = Callable[[str, "ToDriver | Disconnected"], None]
"""Is told the worker's id and what it said, in the order in which it did; from several threads, and
with a lock held: it must not wait, nor call back."""


class ControlServer:
    """Listens from `__init__` to `close`; a thread accepts, and each that speaks has one."""

    def __init__(
        self,
        address: str,
        port: int,
        identity: DriverIdentity,
        on_message: OnMessage,
        *,
        handshake_timeout: float = HANDSHAKE_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises `FleetError` if the address cannot be listened on."""
        self._identity = identity
        self._handshake_timeout = handshake_timeout
        self._clock = clock
        self._on_message = on_message
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._pending: PendingConnections[socket.socket] = PendingConnections()
        self._turned_away = 0
        self._logged_at = float("-inf")
        self._closed = threading.Event()
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((address, port), family=family)
        except OSError as error:
            raise FleetError(
                f"The driver cannot listen on {address}:{port}: {error}. Set bind, host and port "
                "of FleetOptions to what this machine has, and executors can reach."
            ) from None
        self._listener.setblocking(False)  # who has connected may be gone again
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="fleet-accept", daemon=True)
        self._thread.start()

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
        with contextlib.suppress(OSError):  # closed before
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()  # from then on, the port is free
        for channel in channels:
            channel.close()

    # --- the thread that accepts

    def _listen(self) -> None:
        with selectors.DefaultSelector() as silent:
            silent.register(self._listener, selectors.EVENT_READ)
            silent.register(self._woken, selectors.EVENT_READ)
            try:
                while not self._closed.is_set():
                    self._look(silent)
            finally:
                for each in (self._listener, self._wake, self._woken):
                    each.close()
                for stranger in self._pending.clear():
                    _end(stranger)

    def _look(self, silent: selectors.BaseSelector) -> None:
        """Wait for something to happen, and see to it."""
        ready = [key for key, _ in silent.select(self._pending.time_left(self._clock()))]
        for key in ready:
            # Before the timeouts: a connection with bytes to read is not a silent one.
            if isinstance(key.data, PendingConnection):
                silent.unregister(key.fileobj)
                self._let_speak(key.data)
        if any(key.fileobj is self._listener for key in ready):
            self._accept(silent)
        for stranger in self._pending.overdue(self._clock()):
            self._pending.remove(stranger)
            self._turn_away(stranger, silent)

    def _accept(self, silent: selectors.BaseSelector) -> None:
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return  # it did not wait
        except OSError as error:
            _log.warning("Accepting a worker's connection failed: %s", error)
            # Too many open files, say: the next try would fail as well, and at once.
            self._closed.wait(_PAUSE)
            return
        stranger = PendingConnection(connection, str(address[0]), self._clock())
        gone = self._pending.add(stranger)
        if gone is not None:
            self._turn_away(gone, silent)
        silent.register(connection, selectors.EVENT_READ, stranger)

    def _let_speak(self, stranger: PendingConnection[socket.socket]) -> None:
        """It has said something, to which a thread listens from now on; or it is gone."""
        self._pending.mark_spoken(stranger)
        if not _has_bytes(stranger.connection):
            self._pending.remove(stranger)
            stranger.connection.close()
            return
        thread = threading.Thread(
            target=self._serve, args=(stranger,), name="fleet-control", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending
            self._pending.remove(stranger)
            stranger.connection.close()

    def _turn_away(
        self, stranger: PendingConnection[socket.socket], silent: selectors.BaseSelector
    ) -> None:
        if stranger.has_spoken:
            _end(stranger)  # its thread closes it
        else:
            silent.unregister(stranger.connection)
            stranger.connection.close()
        self._turned_away += 1
        now = self._clock()
        if now - self._logged_at >= _LOG_INTERVAL:
            _log.warning(
                "Turned away connections that did not prove to be workers (%d), the last from %s: "
                "somebody else connects to port %d",
                self._turned_away,
                stranger.address,
                self.port,
            )
            self._turned_away, self._logged_at = 0, now

    # --- a connection's thread

    def _serve(self, stranger: PendingConnection[socket.socket]) -> None:
        try:
            try:
                channel = accept_worker(
                    stranger.connection, self._identity, self._handshake_timeout, self._clock
                )
                hello = decode_for_driver(channel.receive())
            finally:
                self._pending.remove(stranger)
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError) as error:
            _log.warning("Refused a connection from %s: %s", stranger.address, error)
            stranger.connection.close()
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


def _has_bytes(connection: socket.socket) -> bool:
    """Whether a connection that is ready to be read has something to read, and not its end."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _end(stranger: PendingConnection[socket.socket]) -> None:
    """End its connection; the thread that reads it, if there is one, closes it."""
    with contextlib.suppress(OSError):
        stranger.connection.shutdown(socket.SHUT_RDWR)
    if not stranger.has_spoken:
        stranger.connection.close()
