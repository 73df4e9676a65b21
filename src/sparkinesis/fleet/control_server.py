"""The driver's end of the control channel: lets workers in, and holds one connection per worker.

Each connection that has not authenticated costs a socket, and a thread once it has sent data. Their
number is limited; beyond the limit, a new connection evicts the one that has been silent for
longest. So other clients cannot keep workers out, whatever their addresses: a worker sends its
first bytes at once.
"""

# Before, each accepted connection had a thread that waited ten seconds for its handshake, and 64
# connections that sent nothing kept all workers out for as long. Hence:
#
# - A thread reads a connection only once it has bytes. Until then, one selector watches all of
#   them.
# - The first bytes are due within three seconds. One deadline holds for the whole handshake, or a
#   byte now and then would prolong it without end.
# - The limit for each address comes first, so that an address with many silent connections evicts
#   its own. It is no smaller, because many workers may share one address: with a local Spark, all
#   do.
# - A connection that has spoken is evicted last: a flood of silent ones must not evict workers
#   within their handshakes. But it can be evicted, or slow handshakes would keep workers out.

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import msgspec

from sparkinesis.errors import FleetError
from sparkinesis.fleet.channel import (
    HANDSHAKE_TIMEOUT,
    Channel,
    ChannelClosedError,
    accept_worker,
)
from sparkinesis.fleet.channel_tls import DriverIdentity, NotAuthenticatedError
from sparkinesis.worker.supervision.control_messages import (
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
MAX_PENDING = 128
MAX_PER_ADDRESS = 64
"""Pending connections per address; many workers may share one address."""
SILENCE_TIMEOUT = 3.0
"""Seconds within which a connection has to send its first bytes."""

_C = TypeVar("_C")


@dataclass(eq=False, slots=True)
class PendingConnection(Generic[_C]):
    """A connection that has not authenticated yet."""

    connection: _C
    address: str
    since: float
    """The time at which the connection was accepted, in seconds."""
    has_spoken: bool = False


def connection_to_evict(
    pending: Iterable[PendingConnection[_C]],
    newest: PendingConnection[_C],
    *,
    limit: int = MAX_PENDING,
    per_address: int = MAX_PER_ADDRESS,
) -> PendingConnection[_C] | None:
    """Return the connection to close in favour of the newest, if there are too many. Pure.

    If the newest's address has too many, the choice is among that address, else among all. The
    choice is the oldest silent connection, or, if none is silent, the oldest one that has sent
    data.
    """
    others = [each for each in pending if each is not newest]
    neighbours = [each for each in others if each.address == newest.address]
    if len(neighbours) >= per_address:
        others = neighbours
    elif len(others) < limit:
        return None
    return min(others, key=lambda each: (each.has_spoken, each.since), default=None)


@dataclass(slots=True)
class PendingConnections(Generic[_C]):
    """The pending connections. Safe to use from any thread."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[int, PendingConnection[_C]] = field(default_factory=dict)
    """Connections by id(), oldest first."""

    def __len__(self) -> int:
        return len(self._known)

    def add(self, newest: PendingConnection[_C]) -> PendingConnection[_C] | None:
        """Add a connection; return the one that is evicted for it, if any."""
        with self._lock:
            gone = connection_to_evict(self._known.values(), newest)
            if gone is not None:
                del self._known[id(gone)]
            self._known[id(newest)] = newest
        return gone

    def remove(self, stranger: PendingConnection[_C]) -> None:
        """Remove a connection that has authenticated or ended, if it is there."""
        with self._lock:
            self._known.pop(id(stranger), None)

    def clear(self) -> list[PendingConnection[_C]]:
        """Remove and return all connections."""
        with self._lock:
            found = list(self._known.values())
            self._known.clear()
        return found

    def overdue(self, now: float) -> list[PendingConnection[_C]]:
        """Return the connections that have been silent for too long."""
        with self._lock:
            silent = [each for each in self._known.values() if not each.has_spoken]
        return [each for each in silent if now - each.since >= SILENCE_TIMEOUT]

    def time_left(self, now: float) -> float | None:
        """Return the seconds until the next connection is overdue; None if none is silent."""
        with self._lock:
            begun = [each.since for each in self._known.values() if not each.has_spoken]
        return max(0.0, min(begun) + SILENCE_TIMEOUT - now) if begun else None


_Stranger: TypeAlias = PendingConnection[socket.socket]


class _Entrance:
    """Listens at an address, in a thread of its own, from `open` to `close`."""

    _thread: threading.Thread

    def __init__(
        self, address: str, port: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `FleetError` if the address cannot be listened on."""
        self._clock = clock
        self.pending: PendingConnections[socket.socket] = PendingConnections()
        """The connections that have not authenticated."""
        self._evicted = 0
        """The number of evicted connections that no warning has counted."""
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

    def open(self, serve: Callable[[_Stranger], None]) -> None:
        """Begin to accept connections.

        serve: called in a new thread with each connection that has sent data. It has to remove the
        connection from `pending`.
        """
        self._serve = serve
        self._thread = threading.Thread(target=self._listen, name="fleet-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Free the port, and close the connections that have not authenticated."""
        self._closed.set()
        with contextlib.suppress(OSError):  # already closed
            self._wake.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()  # the port is free now

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
                for pending in self.pending.clear():
                    _shut_down(pending)

    def _poll(self, selector: selectors.BaseSelector) -> None:
        """Wait for connections, first bytes or timeouts, and handle them."""
        ready = [key for key, _ in selector.select(self.pending.time_left(self._clock()))]
        for key in ready:
            # Before the timeouts: a connection with bytes to read is not a silent one.
            if isinstance(key.data, PendingConnection):
                selector.unregister(key.fileobj)
                self._start_serving(key.data)
        if any(key.fileobj is self._listener for key in ready):
            self._accept(selector)
        for pending in self.pending.overdue(self._clock()):
            self.pending.remove(pending)
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
        gone = self.pending.add(pending)
        if gone is not None:
            self._evict(gone, selector)
        selector.register(connection, selectors.EVENT_READ, pending)

    def _start_serving(self, pending: _Stranger) -> None:
        """Start a thread for a connection with data; close one that has ended."""
        pending.has_spoken = True
        if _has_bytes(pending.connection):
            thread = threading.Thread(
                target=self._serve, args=(pending,), name="fleet-control", daemon=True
            )
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                thread.start()
                return
        self.pending.remove(pending)
        pending.connection.close()

    def _evict(self, pending: _Stranger, selector: selectors.BaseSelector) -> None:
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


def _has_bytes(connection: socket.socket) -> bool:
    """Return True if a readable connection has data, False if it has ended."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _shut_down(pending: _Stranger) -> None:
    """Shut a connection down; its thread, if there is one, closes it."""
    with contextlib.suppress(OSError):
        pending.connection.shutdown(socket.SHUT_RDWR)
    if not pending.has_spoken:
        pending.connection.close()


OnMessage: TypeAlias = Callable[[str, "ToSupervisor | Disconnected"], None]
"""A callback with the worker's id and its message, in the order of sending. It is called from
several threads with a lock held: it must not block, nor call the server."""


class ControlServer:
    """The connections of all workers, from `__init__` to `close`. Each has a thread."""

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
        self._on_message = on_message
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._is_closed = False
        self._entrance = _Entrance(address, port, clock)
        self.port: int = self._entrance.port
        self._entrance.open(self._serve)

    def send(self, message: ToWorker, worker_id: str | None = None) -> None:
        """Send a message to a worker if it is connected; None: to all that are."""
        data = encode(message)
        for channel in self._open(worker_id):
            with contextlib.suppress(ChannelClosedError):  # the receiving thread reports the end
                channel.send(data)

    def drop(self, worker_id: str) -> None:
        """Close a worker's connection."""
        for channel in self._open(worker_id):
            channel.close()

    def _open(self, worker_id: str | None = None) -> list[Channel]:
        """Return the connection of a worker, if there is one; None: those of all workers."""
        with self._lock:
            return [one for key, one in self._channels.items() if worker_id in {None, key}]

    def close(self) -> None:
        """Free the port, and close all connections."""
        with self._lock:
            self._is_closed = True
            channels = list(self._channels.values())
        self._entrance.close()
        for channel in channels:
            channel.close()

    # --- a connection's thread

    def _serve(self, pending: _Stranger) -> None:
        try:
            try:
                channel = accept_worker(pending.connection, self._identity, self._handshake_timeout)
                hello = decode_for_supervisor(channel.receive())
            finally:
                self._entrance.pending.remove(pending)
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
            if self._is_closed:
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
