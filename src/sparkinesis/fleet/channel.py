"""Encrypted and mutually authenticated messages between a fleet's driver and its workers."""

# A stranger on the network must not be able to give orders to a worker, report in a worker's name,
# or read a message: reports quote tracebacks, and these may quote users' data. Two credentials of a
# run see to that; the driver makes them, and Spark sends them to the executors within the task.
#
# - The certificate (see `channel_tls`) tells a worker that it talks to this run's driver, and
#   encrypts. Before there was one, the channel was authenticated, but not encrypted.
# - A secret of 32 bytes tells the driver that it talks to a worker of this run. Each side proves
#   that it knows the secret (HMAC-SHA256 over a nonce of each) before any message is decoded. The
#   labels of the proofs differ, so that a proof cannot be sent back to its sender as the other
#   side's; and the worker, which connects, proves first.
#
# Each message has a MAC over its number, under a key of this connection and direction: no message
# can be inserted, repeated or dropped unnoticed. The nonces make the keys, so messages of an
# earlier connection fail. Comparisons take constant time (`hmac.compare_digest`).
#
# Timeouts are part of it. The handshake has one deadline for all of its reads: with one for each
# read, a byte now and then kept a connection for ever. Sends have a limit of their own
# (SO_SNDTIMEO): to a machine that is gone, a send waits as long as TCP does, in which a worker did
# not see that it had lost its driver. Reads have none after the handshake, since heartbeats decide
# who is lost.

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
from typing import NoReturn, TypeAlias

from sparkinesis.errors import SparkinesisError
from sparkinesis.fleet.channel_tls import (
    DriverIdentity,
    NotAuthenticatedError,
    TlsConnection,
    WorkerCredentials,
    tls_as_worker,
)

_MAGIC = b"sparkinesis-1\n"
_NONCE = 32
_MAC = 32
_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_TIMEVAL = struct.Struct("@ll")
MAX_MESSAGE = 16 * 1_048_576
"""Bytes; a larger message is a bug or an attack."""
HANDSHAKE_TIMEOUT = 10.0
"""Seconds for the other side to authenticate."""
SEND_TIMEOUT = 10.0
"""Seconds within which the other side has to receive some part of a message. Without this timeout,
a sender would wait for a dead machine as long as TCP does: a quarter of an hour."""


class ChannelClosedError(SparkinesisError):
    """The connection was closed, by the other side or by this one."""


Connection: TypeAlias = TlsConnection | socket.socket


class Channel:
    """An authenticated connection. Any thread may call `send`, only one `receive`."""

    def __init__(self, connection: Connection, send_key: bytes, receive_key: bytes) -> None:
        self._connection = connection
        self._send_key = send_key
        self._receive_key = receive_key
        self._sending = threading.Lock()
        self._sent = 0
        self._received = 0

    def send(self, message: bytes) -> None:
        """Send a message. Raises `ChannelClosedError`; ValueError for a message that is too large.

        If sending fails, the connection is closed: a part of the message may have been sent.
        """
        if len(message) > MAX_MESSAGE:
            raise ValueError(
                f"The message has {len(message):,} bytes; the limit is {MAX_MESSAGE:,}."
            )
        with self._sending:
            mac = _mac(self._send_key, _NUMBER.pack(self._sent), message)
            self._sent += 1
            try:
                self._connection.sendall(_LENGTH.pack(len(message)) + message + mac)
            except OSError as error:
                self.close()  # wakes the receiving thread
                _closed(error)

    def receive(self) -> bytes:
        """Wait for the next message. Raises `ChannelClosedError` and `NotAuthenticatedError`."""
        (length,) = _LENGTH.unpack(_read(self._connection, _LENGTH.size))
        if length > MAX_MESSAGE:
            raise NotAuthenticatedError(
                f"A message of {length:,} bytes was announced; the limit is {MAX_MESSAGE:,}."
            )
        message = _read(self._connection, length)
        mac = _read(self._connection, _MAC)
        if not hmac.compare_digest(
            mac, _mac(self._receive_key, _NUMBER.pack(self._received), message)
        ):
            raise NotAuthenticatedError("A message was altered, repeated or dropped on its way.")
        self._received += 1
        return message

    def close(self) -> None:
        """Close the connection; `receive` raises, here and on the other side."""
        with contextlib.suppress(OSError):  # the other side closed it first
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def accept_worker(
    connection: socket.socket,
    identity: DriverIdentity,
    timeout: float = HANDSHAKE_TIMEOUT,
) -> Channel:
    """Authenticate a worker's connection, on the driver; ``timeout``: seconds for all handshakes.

    Raises `NotAuthenticatedError` and `ChannelClosedError`, after closing the connection.
    """
    # One deadline for all reads, so that sending a byte now and then cannot prolong the handshake.
    until = time.monotonic() + timeout
    with _closed_on_error(connection):
        connection.settimeout(timeout)
        secured = TlsConnection(connection, identity.context, is_driver=True)
        secured.handshake(
            until, "The TLS handshake failed; the other side is no worker of this run"
        )
        return authenticated(secured, identity.credentials.secret, until, is_driver=True)


def connect_to_driver(host: str, port: int, credentials: WorkerCredentials) -> Channel:
    """Connect to the driver and authenticate. Raises the errors of `accept_worker`."""
    until = time.monotonic() + HANDSHAKE_TIMEOUT
    try:
        connection = socket.create_connection((host, port), HANDSHAKE_TIMEOUT)
    except OSError as error:
        raise ChannelClosedError(
            f"The driver cannot be reached at {host}:{port}: {error}."
        ) from None
    with _closed_on_error(connection):
        secured = tls_as_worker(connection, credentials.certificate, until)
        return authenticated(secured, credentials.secret, until, is_driver=False)


def authenticated(
    connection: Connection, secret: bytes, until: float, *, is_driver: bool
) -> Channel:
    """Prove knowledge of the secret to each other; ``until``: the deadline for all of it.

    Raises `NotAuthenticatedError` and `ChannelClosedError`, after closing the connection.
    """
    with _closed_on_error(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Ends reads from a peer whose machine died without closing the connection.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        prove = _prove_as_driver if is_driver else _prove_as_worker
        nonces = prove(connection, secret, lambda: until - time.monotonic())
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
    """Close the connection on any error; a socket's error becomes `ChannelClosedError`."""
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
        raise NotAuthenticatedError(
            "The other side does not know the run's secret; it is not a worker of this run."
        )
    connection.sendall(_mac(secret, b"I am the driver", nonces))
    return nonces


def _prove_as_worker(
    connection: Connection, secret: bytes, time_left: Callable[[], float]
) -> bytes:
    greeting = _read(connection, len(_MAGIC) + _NONCE, time_left)
    if not greeting.startswith(_MAGIC):
        raise NotAuthenticatedError("The server at the driver's address is not a fleet's driver.")
    mine = os.urandom(_NONCE)
    nonces = greeting[len(_MAGIC) :] + mine
    connection.sendall(mine + _mac(secret, b"I am a worker", nonces))
    proof = _read(connection, _MAC, time_left)
    if not hmac.compare_digest(proof, _mac(secret, b"I am the driver", nonces)):
        raise NotAuthenticatedError(
            "The server at the driver's address does not know the run's secret."
        )
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
            raise NotAuthenticatedError(f"Data was altered on its way: {error}.") from None
        except OSError as error:
            _closed(error)
        if not piece:
            raise ChannelClosedError("The other side closed the connection.")
        data += piece
    return bytes(data)


def _closed(error: OSError) -> NoReturn:
    raise ChannelClosedError(f"The connection was lost: {error}") from None
