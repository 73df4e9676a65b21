"""Messages between a fleet's driver and its workers: encrypted, and authenticated both ways.

The connection is TLS 1.3 (see `tls`): a worker talks to nobody but the holder of the run's
certificate. Inside of it, both sides know a secret of 32 bytes that is drawn anew for each run.
Each proves it to the other before a message is looked at (HMAC-SHA256 over two nonces), and each
message carries a MAC with its number under a key of this connection and direction: nobody without
the secret can put in, repeat or leave out a message unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from sparkinesis.errors import SparkinesisError
from sparkinesis.fleet.channel.tls import (
    DriverIdentity,
    NotAuthenticatedError,
    WorkerCredentials,
    tls_as_driver,
    tls_as_worker,
)

_MAGIC = b"sparkinesis-1\n"
_NONCE = 32
_MAC = 32
_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_TIMEVAL = struct.Struct("@ll")
MAX_MESSAGE = 16 * 1_048_576
"""Bytes; more is a mistake, or an attack."""
HANDSHAKE_TIMEOUT = 10.0
"""Seconds for the other side to prove itself."""
SEND_TIMEOUT = 10.0
"""Seconds in which the other side has to take something of a message. Without it, a sender would
wait for a machine that is gone as long as TCP does: a quarter of an hour."""


class ChannelClosedError(SparkinesisError):
    """The connection has ended, or was closed here."""


class Connection(Protocol):
    """As much of a socket as a channel needs."""

    def recv(self, count: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def setsockopt(self, level: int, name: int, value: int | bytes, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Channel:
    """An authenticated connection. `send` is for any thread, `receive` for one."""

    def __init__(self, connection: Connection, send_key: bytes, receive_key: bytes) -> None:
        self._connection = connection
        self._send_key = send_key
        self._receive_key = receive_key
        self._sending = threading.Lock()
        self._sent = 0
        self._received = 0

    def send(self, message: bytes) -> None:
        """Raises `ChannelClosedError`, and ValueError for a message that is too large.

        A message that cannot be sent ends the connection: half of it may have gone out.
        """
        if len(message) > MAX_MESSAGE:
            raise ValueError(f"A message of {len(message):,} bytes; {MAX_MESSAGE:,} may be sent.")
        with self._sending:
            mac = _mac(self._send_key, _NUMBER.pack(self._sent), message)
            self._sent += 1
            try:
                self._connection.sendall(_LENGTH.pack(len(message)) + message + mac)
            except OSError as error:
                self.close()  # wakes who receives
                _closed(error)

    def receive(self) -> bytes:
        """Wait for the next message. Raises `ChannelClosedError` and `NotAuthenticatedError`."""
        (length,) = _LENGTH.unpack(_read(self._connection, _LENGTH.size))
        if length > MAX_MESSAGE:
            raise NotAuthenticatedError(f"A message of {length:,} bytes was announced.")
        message = _read(self._connection, length)
        mac = _read(self._connection, _MAC)
        if not hmac.compare_digest(
            mac, _mac(self._receive_key, _NUMBER.pack(self._received), message)
        ):
            raise NotAuthenticatedError("A message was changed on its way, or is not the next one.")
        self._received += 1
        return message

    def close(self) -> None:
        """End the connection; `receive` raises, here and at the other side."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def accept_worker(
    connection: socket.socket,
    identity: DriverIdentity,
    timeout: float = HANDSHAKE_TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
) -> Channel:
    """The driver's side of the handshakes; ``timeout``: seconds for all of them.

    Raises `NotAuthenticatedError` and `ChannelClosedError`; the connection is closed then.
    """
    # One deadline for all that is read, or who sends a byte now and then could stay for long.
    until = clock() + timeout
    with _closed_on_error(connection):
        connection.settimeout(timeout)
        secured = tls_as_driver(connection, identity, until, clock)
        return authenticated(secured, identity.credentials.secret, until, clock, is_driver=True)


def connect_to_driver(
    host: str,
    port: int,
    credentials: WorkerCredentials,
    timeout: float = HANDSHAKE_TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
) -> Channel:
    """The worker's side. Raises as `accept_worker` does."""
    until = clock() + timeout
    try:
        connection = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise ChannelClosedError(
            f"The driver cannot be reached at {host}:{port}: {error}."
        ) from None
    with _closed_on_error(connection):
        secured = tls_as_worker(connection, credentials.certificate, until, clock)
        return authenticated(secured, credentials.secret, until, clock, is_driver=False)


def authenticated(
    connection: Connection,
    secret: bytes,
    until: float,
    clock: Callable[[], float] = time.monotonic,
    *,
    is_driver: bool,
) -> Channel:
    """Prove the secret, and have it proved; ``until``: by then, all of it.

    Raises `NotAuthenticatedError` and `ChannelClosedError`; the connection is closed then.
    """
    with _closed_on_error(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer whose machine went away shows as silence; this ends reads that wait for it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        prove = _prove_as_driver if is_driver else _prove_as_worker
        nonces = prove(connection, secret, lambda: until - clock())
        connection.settimeout(None)
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(round(SEND_TIMEOUT), 0)
        )
    to_worker = _mac(secret, b"messages to the worker", nonces)
    to_driver = _mac(secret, b"messages to the driver", nonces)
    if is_driver:
        return Channel(connection, to_worker, to_driver)
    return Channel(connection, to_driver, to_worker)


@contextlib.contextmanager
def _closed_on_error(connection: Connection) -> Iterator[None]:
    """Closes the connection on any error; what a socket raises is `ChannelClosedError`."""
    try:
        yield
    except OSError as error:
        connection.close()
        _closed(error)
    except BaseException:
        connection.close()
        raise


def _prove_as_driver(
    connection: Connection, secret: bytes, time_left: Callable[[], float]
) -> bytes:
    mine = os.urandom(_NONCE)
    connection.sendall(_MAGIC + mine)
    answer = _read(connection, _NONCE + _MAC, time_left)
    nonces = mine + answer[:_NONCE]
    if not hmac.compare_digest(answer[_NONCE:], _mac(secret, b"I am a worker", nonces)):
        raise NotAuthenticatedError("Somebody connected who does not know the run's secret.")
    connection.sendall(_mac(secret, b"I am the driver", nonces))
    return nonces


def _prove_as_worker(
    connection: Connection, secret: bytes, time_left: Callable[[], float]
) -> bytes:
    greeting = _read(connection, len(_MAGIC) + _NONCE, time_left)
    if not greeting.startswith(_MAGIC):
        raise NotAuthenticatedError("What answers in the driver's place is something else.")
    mine = os.urandom(_NONCE)
    nonces = greeting[len(_MAGIC) :] + mine
    connection.sendall(mine + _mac(secret, b"I am a worker", nonces))
    proof = _read(connection, _MAC, time_left)
    if not hmac.compare_digest(proof, _mac(secret, b"I am the driver", nonces)):
        raise NotAuthenticatedError("Who answers in the driver's place does not know the secret.")
    return nonces


def _mac(key: bytes, label: bytes, message: bytes) -> bytes:
    return hmac.new(key, label + b"\0" + message, hashlib.sha256).digest()


def _read(
    connection: Connection, count: int, time_left: Callable[[], float] | None = None
) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            if time_left is not None:
                connection.settimeout(max(0.001, time_left()))
            piece = connection.recv(min(count - len(data), 1_048_576))
        except ssl.SSLError as error:
            raise NotAuthenticatedError(f"Something was changed on its way: {error}.") from None
        except OSError as error:
            _closed(error)
        if not piece:
            raise ChannelClosedError("The other side has closed the connection.")
        data += piece
    return bytes(data)


def _closed(error: OSError) -> NoReturn:
    raise ChannelClosedError(f"The connection has ended: {error}") from None
