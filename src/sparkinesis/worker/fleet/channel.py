"""Messages over a TCP connection between a fleet's driver and its workers, authenticated.

Both sides know a secret of 32 bytes that is drawn anew for each run. Each proves it to the other
before a message is looked at (HMAC-SHA256 over two nonces), and each message carries a MAC with its
number under a key of this connection and direction: nobody without the secret can read on, put in,
repeat or leave out a message unnoticed. Messages are not encrypted, as Spark's own are not unless
told so; they hold shard ids, figures and tracebacks, never records or credentials.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
import time
from typing import NoReturn

from sparkinesis.errors import SparkinesisError

SECRET_BYTES = 32
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


class NotAuthenticatedError(SparkinesisError):
    """The other side does not know the run's secret, or a message was tampered with."""


class Channel:
    """An authenticated connection. `send` is for any thread, `receive` for one."""

    def __init__(self, connection: socket.socket, send_key: bytes, receive_key: bytes) -> None:
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
    connection: socket.socket, secret: bytes, timeout: float = HANDSHAKE_TIMEOUT
) -> Channel:
    """The driver's side of the handshake; ``timeout``: seconds for all of it.

    Raises `NotAuthenticatedError` and `ChannelClosedError`; the connection is closed then.
    """
    return _shake_hands(connection, secret, timeout, is_driver=True)


def connect_to_driver(
    host: str, port: int, secret: bytes, timeout: float = HANDSHAKE_TIMEOUT
) -> Channel:
    """The worker's side. Raises as `accept_worker` does."""
    try:
        connection = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise ChannelClosedError(
            f"The driver cannot be reached at {host}:{port}: {error}."
        ) from None
    return _shake_hands(connection, secret, timeout, is_driver=False)


def _shake_hands(
    connection: socket.socket, secret: bytes, timeout: float, *, is_driver: bool
) -> Channel:
    # One deadline for all that is read, or who sends a byte now and then could stay for long.
    until = time.monotonic() + timeout
    try:
        connection.settimeout(timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer whose machine went away shows as silence; this ends reads that wait for it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if is_driver:
            nonces = _prove_as_driver(connection, secret, until)
        else:
            nonces = _prove_as_worker(connection, secret, until)
        connection.settimeout(None)
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(round(SEND_TIMEOUT), 0)
        )
    except OSError as error:
        connection.close()
        _closed(error)
    except BaseException:
        connection.close()
        raise
    to_worker = _mac(secret, b"messages to the worker", nonces)
    to_driver = _mac(secret, b"messages to the driver", nonces)
    if is_driver:
        return Channel(connection, to_worker, to_driver)
    return Channel(connection, to_driver, to_worker)


def _prove_as_driver(connection: socket.socket, secret: bytes, until: float) -> bytes:
    mine = os.urandom(_NONCE)
    connection.sendall(_MAGIC + mine)
    answer = _read(connection, _NONCE + _MAC, until)
    nonces = mine + answer[:_NONCE]
    if not hmac.compare_digest(answer[_NONCE:], _mac(secret, b"I am a worker", nonces)):
        raise NotAuthenticatedError("Somebody connected who does not know the run's secret.")
    connection.sendall(_mac(secret, b"I am the driver", nonces))
    return nonces


def _prove_as_worker(connection: socket.socket, secret: bytes, until: float) -> bytes:
    greeting = _read(connection, len(_MAGIC) + _NONCE, until)
    if not greeting.startswith(_MAGIC):
        raise NotAuthenticatedError("What answers in the driver's place is something else.")
    mine = os.urandom(_NONCE)
    nonces = greeting[len(_MAGIC) :] + mine
    connection.sendall(mine + _mac(secret, b"I am a worker", nonces))
    proof = _read(connection, _MAC, until)
    if not hmac.compare_digest(proof, _mac(secret, b"I am the driver", nonces)):
        raise NotAuthenticatedError("Who answers in the driver's place does not know the secret.")
    return nonces


def _mac(key: bytes, label: bytes, message: bytes) -> bytes:
    return hmac.new(key, label + b"\0" + message, hashlib.sha256).digest()


def _read(connection: socket.socket, count: int, until: float | None = None) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            if until is not None:
                connection.settimeout(max(0.001, until - time.monotonic()))
            piece = connection.recv(min(count - len(data), 1_048_576))
        except OSError as error:
            _closed(error)
        if not piece:
            raise ChannelClosedError("The other side has closed the connection.")
        data += piece
    return bytes(data)


def _closed(error: OSError) -> NoReturn:
    raise ChannelClosedError(f"The connection has ended: {error}") from None
