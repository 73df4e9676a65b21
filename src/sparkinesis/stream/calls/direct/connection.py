"""HTTP/1.1 over connections that are kept between calls, with TLS where the endpoint has it."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)

from sparkinesis.metrics.health.liveness import CONNECTING, expect
from sparkinesis.stream.calls.answers.guards import AnswerTooLongError, Bound, hurry
from sparkinesis.stream.calls.direct.http_answer import (
    Head,
    HttpAnswer,
    StreamedBody,
    content_length,
    has_data,
    read_body,
    read_head,
)

if TYPE_CHECKING:
    import ssl

_SENT_AT_ONCE = 16_384
"""Bytes of a request that the system takes at once: sending them takes no time of the answer's."""
_BROKEN = (OSError, EOFError, ValueError)


class SentRequest:
    """A request whose answer is still to be received. It owns its connection until then."""

    def __init__(self, connection: socket.socket, until: float, most: int) -> None:
        """until, most: as of `read_body`."""
        self.until, self.most = until, most
        self._connection: socket.socket | None = connection

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def take(self) -> socket.socket:
        """Return the connection, which is the caller's from now on. Call it once."""
        connection, self._connection = self._connection, None
        assert connection is not None
        return connection


class _ClosedByErrors:
    """Closes a connection whose call fails; errors of the system and of HTTP become botocore's."""

    __slots__ = ("_connection", "_url")

    def __init__(self, connection: socket.socket, url: str) -> None:
        self._connection, self._url = connection, url

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            return
        self._connection.close()
        if isinstance(error, _BROKEN):
            raise _as_botocores(error, self._url) from error


def _as_botocores(error: Exception, url: str) -> Exception:
    kind: Any = ConnectionClosedError
    if isinstance(error, AnswerTooLongError):
        kind = HTTPClientError
    elif isinstance(error, TimeoutError):
        kind = ReadTimeoutError
    elif _is_of_tls(error):
        kind = SSLError
    botocores: Exception = kind(endpoint_url=url, error=error)
    return botocores


# A kept connection must never give a call the bytes of another call's answer. Nothing in an answer
# says to which request it belongs, so a page of another shard would be taken for this shard's.
#
# - A connection is kept only if its answer ended where its headers or chunks say, no byte came
#   behind it, and the server did not ask for the end. After an error of any kind it is closed, as
#   the rest of the answer may still be on its way.
# - Bytes may arrive later, while the connection is idle. So it is polled before it is used again,
#   and closed if there is something to read: its end, or what nobody asked for. A poll of the
#   socket alone was not enough over TLS. TLS decrypts whole frames: bytes behind an answer, within
#   the frame of its end, wait in the TLS layer, and the socket shows nothing of them. They were
#   then taken for the next call's answer. `has_data` therefore asks for both, the socket's bytes
#   and those that are ``pending`` in TLS, wherever a connection or a stream is asked.
# - A child of a fork has the sockets of its parent, and both would read one answer: the child
#   forgets them.
# - Nothing is tried again here, although a server may close a kept connection in the moment in
#   which a request is sent. Whether a call may be repeated is known to its caller only.
class ConnectionPool:
    """The connections to one endpoint. For any thread, and for any process after a fork.

    context: None for plain HTTP. read_timeout: seconds, for each part of an answer; each call also
    has a bound for the whole. most_idle: the most connections to keep.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        *,
        read_timeout: float,
        most_idle: int,
        keep_alive_probes: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = context
        self._read_timeout = read_timeout
        self._most_idle = most_idle
        self._keep_alive_probes = keep_alive_probes
        self._idle: deque[socket.socket] = deque()
        self._process = os.getpid()

    def __del__(self) -> None:
        self.close()

    def exchange(self, request: bytes, bound: Bound) -> HttpAnswer:
        """Send a request, and return the answer to it. Nothing is retried.

        Raises botocore's errors of connections, as botocore's client does.
        """
        until = time.monotonic() + bound.seconds
        connection = self._idle_connection() or self._connect()
        with _ClosedByErrors(connection, self.url):
            self._put(connection, request, bound, until)
            head, body, may_be_kept = self._read(connection, until, bound.size)
        return self._done(connection, head, body, may_be_kept=may_be_kept)

    def send_ahead(self, request: bytes, bound: Bound) -> SentRequest | None:
        """Send a request over a kept connection; `receive` then waits for the answer only.

        None if no connection is kept. Raises what `exchange` raises.
        """
        connection = self._idle_connection()
        if connection is None:
            return None
        until = time.monotonic() + bound.seconds
        with _ClosedByErrors(connection, self.url):
            self._put(connection, request, bound, until)
        return SentRequest(connection, until, bound.size)

    def receive(self, sent: SentRequest) -> HttpAnswer:
        """Return the answer to a request. Raises what `exchange` raises."""
        connection = sent.take()
        expect(max(0.0, sent.until - time.monotonic()))
        with _ClosedByErrors(connection, self.url):
            hurry(connection, sent.until, self._read_timeout)
            head, body, may_be_kept = self._read(connection, sent.until, sent.most)
        return self._done(connection, head, body, may_be_kept=may_be_kept)

    def _read(
        self, connection: socket.socket, until: float, most: int
    ) -> tuple[Head, bytes | bytearray, bool]:
        """Return an answer's head and body, and whether its connection may be kept."""
        timeout = self._read_timeout
        head, start = read_head(connection, until, timeout)
        return head, *read_body(
            self.url, connection, head, start, most=most, until=until, timeout=timeout
        )

    def _done(
        self, connection: socket.socket, head: Head, body: bytes | bytearray, *, may_be_kept: bool
    ) -> HttpAnswer:
        expect()
        if may_be_kept and len(self._idle) < self._most_idle:
            self._idle.append(connection)
        else:
            connection.close()
        return HttpAnswer(head[0], head[1], body)

    def begin(self, request: bytes, bound: Bound) -> HttpAnswer:
        """Send a request; return its answer as soon as the headers are there.

        A successful answer has a ``stream``, which owns its connection from now on. Raises what
        `exchange` raises.
        """
        until = time.monotonic() + bound.seconds
        connection = self._idle_connection() or self._connect()
        with _ClosedByErrors(connection, self.url):
            self._send(connection, request, until)
            (status, headers, _), start = read_head(connection, until, self._read_timeout)
            content_length(headers.get("content-length", "0"))
            connection.settimeout(self._read_timeout)
            stream = StreamedBody(self.url, connection, start, headers)
            if status < 300:
                return HttpAnswer(status, headers, b"", stream)
            with contextlib.closing(stream):
                body = stream.whole(bound.size, until)
        return HttpAnswer(status, headers, body)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _idle_connection(self) -> socket.socket | None:
        """Return the connection that was used last, if nothing has arrived over it since."""
        if os.getpid() != self._process:
            self._idle, self._process = deque(), os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not has_data(connection):
                return connection
            connection.close()

    def _connect(self) -> socket.socket:
        expect(CONNECTING)
        timeout = connect_timeout(self._read_timeout)
        try:
            connection = socket.create_connection((self._host, self._port), timeout)
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=self.url, error=error) from error
        except (OSError, UnicodeError) as error:
            raise EndpointConnectionError(endpoint_url=self.url, error=error) from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._keep_alive_probes:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=self._host)
        except TimeoutError as error:
            connection.close()
            raise ConnectTimeoutError(endpoint_url=self.url, error=error) from error
        except OSError as error:
            connection.close()
            if _is_of_tls(error):
                raise SSLError(endpoint_url=self.url, error=error) from error
            raise HTTPClientError(error=error) from error
        return connection

    def _put(self, connection: socket.socket, request: bytes, bound: Bound, until: float) -> None:
        # No sooner: over a slow line a long answer takes long, and nobody stands still.
        expect(bound.seconds)
        self._send(connection, request, until)

    def _send(self, connection: socket.socket, request: bytes, until: float) -> None:
        hurry(connection, until, self._read_timeout)
        try:  # noqa: SIM105 - contextlib.suppress takes three calls more
            connection.sendall(request)
        except BrokenPipeError:
            # A server may refuse a long request, and close the connection, before it has read all.
            pass
        if len(request) > _SENT_AT_ONCE:
            hurry(connection, until, self._read_timeout)


def connect_timeout(read_timeout: float) -> float:
    """Return the seconds in which a client with this ``read_timeout`` has to connect."""
    return min(10.0, read_timeout)


class ConnectionPools:
    """The connection pools of a client, one for each endpoint. For any thread.

    trusted: the certificates to trust, as `trusted` returns them. The others: see `ConnectionPool`.
    """

    def __init__(
        self, trusted: Any, *, read_timeout: float, most_idle: int, keep_alive_probes: bool = False
    ) -> None:
        self._trusted = trusted
        self._read_timeout = read_timeout
        self._most_idle = most_idle
        self._keep_alive_probes = keep_alive_probes
        self.by_url: dict[str, ConnectionPool] = {}

    def of(self, url: str) -> ConnectionPool:
        """Return the pool of an endpoint. Raises botocore's `SSLError`."""
        known = self.by_url.get(url)
        if known is not None:
            return known
        pool = ConnectionPool(
            url,
            tls_context(self._trusted, url) if url.startswith("https:") else None,
            read_timeout=self._read_timeout,
            most_idle=self._most_idle,
            keep_alive_probes=self._keep_alive_probes,
        )
        return self.by_url.setdefault(url, pool)

    def close(self) -> None:
        """Close all idle connections."""
        for pool in list(self.by_url.values()):
            pool.close()


def trusted(session: Any) -> Any:
    """Return the path of the certificates to trust, or True for botocore's own.

    The setting is ``ca_bundle`` of ``~/.aws/config``, AWS_CA_BUNDLE or else REQUESTS_CA_BUNDLE.
    An empty one turns verification off, in the versions of botocore that accept it.
    """
    configured = session.get_config_variable("ca_bundle")
    if configured is not None:
        return configured
    found = os.environ.get("REQUESTS_CA_BUNDLE")
    return True if found is None else found


def tls_context(trusted: Any, url: str) -> ssl.SSLContext:
    """Return the context of all connections that trust the same certificates.

    Raises botocore's `SSLError`, for the endpoint ``url``.
    """
    certificates = own_certificates() if trusted is True else trusted
    try:
        return _context(certificates, os.stat(certificates).st_mtime_ns if certificates else 0)  # noqa: PTH116 - pathlib takes long to import
    except OSError as error:
        raise SSLError(endpoint_url=url, error=error) from error


@functools.lru_cache(maxsize=16)
def _context(certificates: str, changed: int) -> ssl.SSLContext:  # noqa: ARG001 - a part of the key
    """Return a context that verifies servers by these certificates; empty: by none.

    A test compares it with botocore's context. botocore imports urllib3 for its own, which takes
    longer than loading the certificates.
    """
    import ssl  # noqa: PLC0415 - a plain endpoint needs none

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_SSLv2 | ssl.OP_NO_SSLv3 | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.post_handshake_auth = True
    context.check_hostname = bool(certificates)
    context.verify_mode = ssl.CERT_REQUIRED if certificates else ssl.CERT_NONE
    key_log = os.environ.get("SSLKEYLOGFILE")
    if key_log and not sys.flags.ignore_environment:
        context.keylog_filename = key_log
    context.set_alpn_protocols(["http/1.1"])
    if certificates:
        context.load_verify_locations(certificates)
    return context


def own_certificates() -> str:
    """Return the path of certifi's certificates, or botocore's where certifi is not installed."""
    try:
        from certifi import where  # noqa: PLC0415
    except ImportError:
        return os.path.join(os.path.dirname(botocore.__file__), "cacert.pem")  # noqa: PTH118, PTH120 - a text
    return str(where())


def _is_of_tls(error: Exception) -> bool:
    import ssl  # noqa: PLC0415 - a plain endpoint needs none

    return isinstance(error, ssl.SSLError)
