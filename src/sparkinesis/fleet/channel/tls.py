"""TLS between a fleet's driver and its workers, with a certificate that is made for each run.

The driver makes a key and a certificate that it signs itself. The certificate travels to the
workers with the run's secret, and is the only one that they trust: names, dates and the machines'
certificate stores play no part. The private key stays in the driver's memory, but for a moment in
which Python's ssl has to read it from a file: in that file it is encrypted.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from sparkinesis.errors import FleetError, SparkinesisError

SECRET_BYTES = 32
_PIECE = 65_536
_BEGIN = datetime(2000, 1, 1, tzinfo=timezone.utc)
_END = datetime(9999, 12, 31, tzinfo=timezone.utc)
"""A run may last for years, and an executor's clock may be wrong."""


class NotAuthenticatedError(SparkinesisError):
    """The other side is not of this run, or a message was tampered with."""


@dataclass(frozen=True, slots=True)
class WorkerCredentials:
    """What a worker needs to know its driver, and to be known. Travels with its task."""

    secret: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    """The driver's (DER)."""


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """What the driver shows and checks. Never leaves it."""

    credentials: WorkerCredentials
    context: ssl.SSLContext = field(repr=False)

    @classmethod
    def new(cls, secret: bytes | None = None) -> DriverIdentity:
        """Another one each time. Raises `FleetError` if the package for it is not installed."""
        certificate, key, password = _new_certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
        context.num_tickets = 0  # no connection is resumed
        pem = ssl.DER_cert_to_PEM_cert(certificate).encode() + key
        opened, name = tempfile.mkstemp(suffix=".pem")  # for this user only (0600)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(pem)
            context.load_cert_chain(name, password=password)
        finally:
            Path(name).unlink()
        return cls(
            WorkerCredentials(secret or secrets.token_bytes(SECRET_BYTES), certificate), context
        )


def worker_context(certificate: bytes) -> ssl.SSLContext:
    """Trusts this certificate (DER) and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # which one it is counts, and not what it is called
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate)
    return context


class TlsConnection:
    """A TLS connection that one thread may read while others write.

    An object of OpenSSL's is for one thread at a time, and a reader would hold it for as long as
    it waits. So this reads and writes the socket itself, and only what is in memory goes through
    OpenSSL, under a lock. Its methods are those of a socket; errors are OSError.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, *, is_driver: bool
    ) -> None:
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_driver)
        self._state = threading.Lock()
        self._sending = threading.Lock()

    def handshake(self, until: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Do TLS's handshake; ``until``: by then, all of it. Raises OSError."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self._send_outgoing()
                self._connection.settimeout(max(0.001, until - clock()))
                data = self._connection.recv(_PIECE)
                if not data:
                    raise ConnectionResetError("it was closed during TLS's handshake")
                self._incoming.write(data)
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._send_outgoing()  # why
            raise
        self._send_outgoing()

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the other side has shown (DER)."""
        return self._tls.getpeercert(binary_form=True)

    def recv(self, count: int) -> bytes:
        """At least one byte; none at the connection's end."""
        while True:
            with self._state:
                try:
                    return self._tls.read(count)
                except ssl.SSLWantReadError:
                    is_answering = self._outgoing.pending > 0
                except ssl.SSLZeroReturnError:
                    return b""
            if is_answering:
                self._send_outgoing()
            data = self._connection.recv(_PIECE)
            if not data:
                return b""
            with self._state:
                self._incoming.write(data)

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._sending:
            while rest:
                with self._state:
                    rest = rest[self._tls.write(rest[:_PIECE]) :]
                    encrypted = self._outgoing.read()
                self._connection.sendall(encrypted)

    def settimeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def setsockopt(self, level: int, name: int, value: int | bytes) -> None:
        self._connection.setsockopt(level, name, value)

    def shutdown(self, how: int) -> None:
        self._connection.shutdown(how)

    def close(self) -> None:
        self._connection.close()

    def _send_outgoing(self) -> None:
        with self._sending:
            with self._state:
                encrypted = self._outgoing.read()
            if encrypted:
                self._connection.sendall(encrypted)


def tls_as_driver(
    connection: socket.socket,
    identity: DriverIdentity,
    until: float,
    clock: Callable[[], float] = time.monotonic,
) -> TlsConnection:
    """The driver's side of TLS. Raises `NotAuthenticatedError` for what is no TLS, and OSError."""
    secured = TlsConnection(connection, identity.context, is_driver=True)
    try:
        secured.handshake(until, clock)
    except ssl.SSLError as error:
        raise NotAuthenticatedError(f"No worker of this run: {_why(error)}.") from None
    return secured


def tls_as_worker(
    connection: socket.socket,
    certificate: bytes,
    until: float,
    clock: Callable[[], float] = time.monotonic,
) -> TlsConnection:
    """The worker's side of TLS. Until it returns, nothing but TLS's handshake was said.

    Raises `NotAuthenticatedError` unless the other side has the key of ``certificate``, and
    OSError.
    """
    secured = TlsConnection(connection, worker_context(certificate), is_driver=False)
    try:
        secured.handshake(until, clock)
    except ssl.SSLError as error:
        raise NotAuthenticatedError(
            f"What answers in the driver's place has not the run's certificate: {_why(error)}."
        ) from None
    if not hmac.compare_digest(secured.peer_certificate or b"", certificate):
        raise NotAuthenticatedError(
            "What answers in the driver's place has another certificate than the run's."
        )
    return secured


def _new_certificate() -> tuple[bytes, bytes, bytes]:
    """A certificate (DER), its private key (PEM, encrypted), and the password of that."""
    try:
        from cryptography import x509  # noqa: PLC0415 - the driver of a fleet alone needs it
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise FleetError(
            "A fleet's driver and workers talk by TLS, for which the driver makes a certificate: "
            f"that takes the package cryptography ({error}). Install it where the driver runs: "
            "pip install 'sparkinesis[spark]'. Executors do not need it."
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sparkinesis fleet")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    password = secrets.token_hex(32).encode()
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    return certificate.public_bytes(serialization.Encoding.DER), encrypted, password


def _why(error: ssl.SSLError) -> str:
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
