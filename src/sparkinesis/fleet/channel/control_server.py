"""The driver's end of the control channel: a server with one connection per worker."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from sparkinesis.fleet.channel.channel import (
    HANDSHAKE_TIMEOUT,
    Channel,
    ChannelClosedError,
    accept_worker,
)
from sparkinesis.fleet.channel.channel_tls import DriverIdentity, NotAuthenticatedError
from sparkinesis.fleet.channel.entrance import Entrance, Stranger
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Hello,
    ToSupervisor,
    ToWorker,
    decode_for_supervisor,
    encode,
)

_log = logging.getLogger(__name__)

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
        self._entrance = Entrance(address, port, clock)
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

    def _serve(self, pending: Stranger) -> None:
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
