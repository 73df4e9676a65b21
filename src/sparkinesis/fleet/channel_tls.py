"""TLS between a fleet's driver and its workers, with a new self-signed certificate for each run.

The certificate is sent to the workers with the run's secret, and is the only one that they trust:
names, dates and the machines' certificate stores are ignored. The private key stays in the driver's
memory, except for the moment in which Python's ssl reads it from a file, where it is encrypted.
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
    """The other side does not belong to this run, or a message was altered."""


@dataclass(frozen=True, slots=True)
class WorkerCredentials:
    """The secret and certificate by which workers and driver authenticate; part of a task."""

    secret: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    """The driver's certificate (DER)."""


@dataclass(frozen=True, slots=True)
class DriverIdentity:
    """The driver's certificate, key and secret. Never leaves the driver."""

    credentials: WorkerCredentials
    context: ssl.SSLContext = field(repr=False)

    @classmethod
    def new(cls, secret: bytes | None = None) -> DriverIdentity:
        """Make a new identity. Raises `FleetError` if the package cryptography is not installed."""
        certificate, key, password = _new_certificate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # both ends are ours
        context.num_tickets = 0  # TLS sessions are never resumed
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
    """Return a client context that trusts only this certificate (DER)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is compared, not its name
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate)
    return context


class TlsConnection:
    """A TLS connection that one thread may read while others write.

    OpenSSL allows one thread at a time, and a waiting reader would block all writers. So this class
    reads and writes the socket itself, and passes only data in memory through OpenSSL, under a
    lock. Its methods are those of a socket; errors are OSError.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, *, is_driver: bool
    ) -> None:
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_driver)
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self.settimeout = connection.settimeout
        self.setsockopt = connection.setsockopt
        self.shutdown = connection.shutdown
        self.close = connection.close

    def handshake(self, until: float, refusal: str) -> None:
        """Do TLS's handshake; ``until``: its deadline.

        Raises `NotAuthenticatedError`, whose text begins with ``refusal``, and OSError.
        """
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self._send_outgoing()
                self._connection.settimeout(max(0.001, until - time.monotonic()))
                data = self._connection.recv(_PIECE)
                if not data:
                    raise ConnectionResetError("the connection was closed during the TLS handshake")
                self._incoming.write(data)
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._send_outgoing()  # the alert with the reason
            raise NotAuthenticatedError(f"{refusal}: {_why(error)}.") from None
        self._send_outgoing()

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the other side (DER)."""
        return self._tls.getpeercert(binary_form=True)

    def recv(self, count: int) -> bytes:
        """Receive at least one byte; return b"" at the connection's end."""
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

    def _send_outgoing(self) -> None:
        with self._sending:
            with self._state:
                encrypted = self._outgoing.read()
            if encrypted:
                self._connection.sendall(encrypted)


def tls_as_worker(connection: socket.socket, certificate: bytes, until: float) -> TlsConnection:
    """Do TLS as a worker; only the handshake is sent until this returns.

    Raises `NotAuthenticatedError` unless the other side has the key of ``certificate``, and
    OSError.
    """
    secured = TlsConnection(connection, worker_context(certificate), is_driver=False)
    secured.handshake(until, "The server at the driver's address lacks the run's certificate")
    if not hmac.compare_digest(secured.peer_certificate or b"", certificate):
        raise NotAuthenticatedError(
            "The server at the driver's address has a certificate of another run."
        )
    return secured


def _new_certificate() -> tuple[bytes, bytes, bytes]:
    """Make a certificate (DER), its private key (PEM, encrypted), and the key's password."""
    try:
        from cryptography import x509  # noqa: PLC0415 - executors do not need it
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise FleetError(
            "A fleet's driver needs the package cryptography to make the TLS certificate of its "
            f"connections ({error}). Install it where the driver runs: "
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
