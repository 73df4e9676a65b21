"""The driver's end of the control channel: a server with one connection per worker."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from sparkinesis.errors import FleetError
from sparkinesis.fleet.channel.channel import (
    HANDSHAKE_TIMEOUT,
    Channel,
    ChannelClosedError,
    accept_worker,
)
from sparkinesis.fleet.channel.pending import PendingConnection, PendingConnections
from sparkinesis.fleet.channel.tls import DriverIdentity, NotAuthenticatedError
from sparkinesis.worker.supervision.messages import (
    Disconnected,
    Hello,
    ToSupervisor,
    ToWorker,
    decode_for_supervisor,
    encode,
)

_log = logging.getLogger(__name__)

_PAUSE = 0.1
"""Seconds to wait after accepting a connection failed."""
_LOG_INTERVAL = 60.0
"""Seconds between two warnings about connections that did not authenticate."""


OnMessage: TypeAlias = Callable[[str, "ToSupervisor | Disconnected"], None]
"""A callback with the worker's id and its message, in the order of sending. It is called from
several threads with a lock held: it must not block, nor call the server."""


class ControlServer:
    """A server, from `__init__` to `close`: one thread accepts, each connection has one."""

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
        self._evicted = 0
        self._logged_at = float("-inf")
        self._closed = threading.Event()
        try:
            family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((address, port), family=family)
        except OSError as error:
            raise FleetError(
                f"The driver cannot listen on {address}:{port}: {error}. Set bind, host and port "
                "of FleetOptions to an address of this machine that executors can reach."
            ) from None
        self._listener.setblocking(False)  # a client may disconnect before it is accepted
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="fleet-accept", daemon=True)
        self._thread.start()

    def send(self, message: ToWorker, worker_id: str | None = None) -> None:
        """Send a message to a worker if it is connected; None: to all that are."""
        for channel in self._open(worker_id):
            _send(channel, message)

    def drop(self, worker_id: str) -> None:
        """Close a worker's connection."""
        for channel in self._open(worker_id):
            channel.close()

    def _open(self, worker_id: str | None = None) -> list[Channel]:
        """Return the connection of a worker, if there is one; None: those of all workers."""
        with self._lock:
            return [one for key, one in self._channels.items() if worker_id in {None, key}]

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            channels = list(self._channels.values())
        with contextlib.suppress(OSError):  # already closed
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()  # the port is free now
        for channel in channels:
            channel.close()

    # --- the accepting thread

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            try:
                while not self._closed.is_set():
                    self._poll(selector)
            finally:
                for each in (self._listener, self._wake, self._woken):
                    each.close()
                for pending in self._pending.clear():
                    _shut_down(pending)

    def _poll(self, selector: selectors.BaseSelector) -> None:
        """Wait for connections, first bytes or timeouts, and handle them."""
        ready = [key for key, _ in selector.select(self._pending.time_left(self._clock()))]
        for key in ready:
            # Before the timeouts: a connection with bytes to read is not a silent one.
            if isinstance(key.data, PendingConnection):
                selector.unregister(key.fileobj)
                self._start_serving(key.data)
        if any(key.fileobj is self._listener for key in ready):
            self._accept(selector)
        for pending in self._pending.overdue(self._clock()):
            self._pending.remove(pending)
            self._evict(pending, selector)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return  # the client has disconnected
        except OSError as error:
            _log.warning("Accepting a worker's connection failed: %s", error)
            # Wait: with too many open files, for example, the next try would fail at once, too.
            self._closed.wait(_PAUSE)
            return
        pending = PendingConnection(connection, str(address[0]), self._clock())
        gone = self._pending.add(pending)
        if gone is not None:
            self._evict(gone, selector)
        selector.register(connection, selectors.EVENT_READ, pending)

    def _start_serving(self, pending: PendingConnection[socket.socket]) -> None:
        """Start a thread for a connection with data; close one that has ended."""
        pending.has_spoken = True
        if _has_bytes(pending.connection):
            thread = threading.Thread(
                target=self._serve, args=(pending,), name="fleet-control", daemon=True
            )
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                thread.start()
                return
        self._pending.remove(pending)
        pending.connection.close()

    def _evict(
        self, pending: PendingConnection[socket.socket], selector: selectors.BaseSelector
    ) -> None:
        if not pending.has_spoken:
            selector.unregister(pending.connection)
        _shut_down(pending)
        self._evicted += 1
        now = self._clock()
        if now - self._logged_at >= _LOG_INTERVAL:
            _log.warning(
                "Closed %d connections that did not authenticate as workers, the last one from %s; "
                "another program connects to port %d",
                self._evicted,
                pending.address,
                self.port,
            )
            self._evicted, self._logged_at = 0, now

    # --- a connection's thread

    def _serve(self, pending: PendingConnection[socket.socket]) -> None:
        try:
            try:
                channel = accept_worker(pending.connection, self._identity, self._handshake_timeout)
                hello = decode_for_supervisor(channel.receive())
            finally:
                self._pending.remove(pending)
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError) as error:
            _log.warning("Refused a connection from %s: %s", pending.address, error)
            pending.connection.close()
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
                message = decode_for_supervisor(channel.receive())
                with self._lock:
                    if self._channels.get(worker_id) is not channel:
                        break  # the worker has reconnected; this message is outdated
                    self._on_message(worker_id, message)
        except (ChannelClosedError, NotAuthenticatedError, msgspec.DecodeError) as error:
            _log.debug("The connection of worker %s was closed: %s", worker_id, error)
        channel.close()
        with self._lock:
            if self._channels.get(worker_id) is channel:  # the worker has not reconnected
                del self._channels[worker_id]
                self._on_message(worker_id, Disconnected())


def _send(channel: Channel, message: ToWorker) -> None:
    with contextlib.suppress(ChannelClosedError):  # the receiving thread reports the end
        channel.send(encode(message))


def _has_bytes(connection: socket.socket) -> bool:
    """Return True if a readable connection has data, False if it has ended."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _shut_down(pending: PendingConnection[socket.socket]) -> None:
    """Shut a connection down; its thread, if there is one, closes it."""
    with contextlib.suppress(OSError):
        pending.connection.shutdown(socket.SHUT_RDWR)
    if not pending.has_spoken:
        pending.connection.close()
