"""The local server: Kinesis, DynamoDB, STS and CloudWatch for unmodified clients, in a thread."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

from sparkinesis.errors import LocalServerError
from sparkinesis.local.admission import Guard
from sparkinesis.local.clock import Clock, system_clock
from sparkinesis.local.faults import FaultPlan
from sparkinesis.local.kinesis import DEFAULT_REGION, LocalKinesis
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.model.limits import Limits
from sparkinesis.local.wire.dynamodb import Moto, MotoError
from sparkinesis.local.wire.protocol_detector import ProtocolDetector

_LOOPBACK = "127.0.0.1"
# An address that stands for all interfaces cannot be called.
_ON_THIS_MACHINE = {"0.0.0.0": _LOOPBACK, "::": "::1"}  # noqa: S104 - not bound by default


_TURNS = 10
"""Turns of asyncio's loop: more than the four that it takes to make an accepted connection."""


class LocalServer:
    """Kinesis on an HTTP port of this machine; DynamoDB and STS (moto's) on the same port.

    Clients may use JSON or CBOR, over HTTP/1.1 or HTTP/2 (without TLS, with prior knowledge).
    With a certificate the server speaks TLS only, and clients ask for HTTP/2 by ALPN.

    port: 0 picks a free port.
    bind: the address to listen on. The server checks no credentials: on another address than
    the loopback interface's, everyone who reaches this machine can read and delete its data.
    host_names: the names besides localhost under which clients call it, such as its service's name
    in a Compose file. A request for another name is refused, and so is one of another site's web
    page (see docs/local-server.md).
    certificate: a PEM file with a private key and its certificate, and with those of the
    certificate's issuers, if any.
    limits, clock, faults, empty_pages, stream_delay_ms, reshard_delay_ms, consumer_delay_ms: see
    `LocalKinesis`.
    dynamodb: start moto at once; by default it starts on its first call, which takes 2 seconds.
    cloudwatch: serve CloudWatch (moto's), too.
    lease_tables: serves DynamoDB's calls of workers in this process, in place of moto.

        with LocalServer() as server:
            kinesis = server.client("kinesis")
            kinesis.create_stream(StreamName="flights", ShardCount=2)

    Raises: LocalServerError, also from `start`.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        bind: str = _LOOPBACK,
        host_names: Iterable[str] = (),
        certificate: str | os.PathLike[str] | None = None,
        limits: Limits | bool | None = True,
        clock: Clock = system_clock,
        faults: FaultPlan | None = None,
        dynamodb: bool = False,
        cloudwatch: bool = False,
        lease_tables: LeaseTables | None = None,
        empty_pages: int = 0,
        stream_delay_ms: int = 0,
        reshard_delay_ms: int | None = None,
        consumer_delay_ms: int = 0,
    ) -> None:
        self.kinesis: LocalKinesis = LocalKinesis(
            clock=clock,
            limits=limits,
            faults=faults,
            empty_pages=empty_pages,
            stream_delay_ms=stream_delay_ms,
            reshard_delay_ms=reshard_delay_ms,
            consumer_delay_ms=consumer_delay_ms,
        )
        self._address = _checked_address(bind)
        self._scheme = "http" if certificate is None else "https"
        self._guard = Guard(host_names, self._scheme)
        self._certificate = certificate
        self._tls = None if certificate is None else _tls_context(certificate)
        self._port = port
        self._eager_moto = dynamodb
        self._cloudwatch = cloudwatch
        self._lease_tables = lease_tables
        self._host: _Host | None = None
        self._clients: list[Any] = []

    @property
    def endpoint_url(self) -> str:
        """The URL for clients on this machine."""
        if self._host is None:
            raise RuntimeError("the server is not running; call start(), or use it in a with block")
        host = _ON_THIS_MACHINE.get(self._address, self._address)
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self._host.port}"

    @property
    def moto_pid(self) -> int | None:
        """The id of moto's process, which serves all but Kinesis; None if it is not running."""
        return self._host.moto.pid if self._host is not None else None

    def client(self, service: str, region: str = DEFAULT_REGION, **options: Any) -> Any:
        """Return a boto3 client for this endpoint, with credentials; it trusts the certificate.

        The client is closed when the server stops. `options` are passed to botocore's
        ``Session.create_client``, as by boto3.
        """
        if self._certificate is not None:
            options = {"verify": os.fspath(self._certificate), **options}
        with _creating:
            client = _session().create_client(
                service, region_name=region, endpoint_url=self.endpoint_url, **options
            )
        self._clients.append(client)
        return client

    def start(self) -> LocalServer:
        """Start the server; return once it accepts connections. Raises: LocalServerError."""
        if self._host is None:
            host = _Host(
                self.kinesis,
                self._guard,
                self._address,
                self._port,
                self._lease_tables or Moto(),
                tls=self._tls,
                cloudwatch=self._cloudwatch,
            )
            host.start()
            self._host = host
            if self._eager_moto:
                self._start_moto(host)
        return self

    def _start_moto(self, host: _Host) -> None:
        try:
            host.moto.start()
        except MotoError as error:
            self.stop()
            raise LocalServerError(str(error)) from error

    def stop(self) -> None:
        """Close every connection, cancel calls in progress, and end moto."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._host is not None:
            self._host.stop()
            self._host = None

    def __enter__(self) -> LocalServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


_creating = threading.Lock()
"""Held while a client is created: a botocore session is not safe for several threads."""


@functools.cache
def _session() -> Any:
    """Return the botocore session of all clients; the session keeps botocore's parsed files."""
    import botocore.session  # noqa: PLC0415 - half a second that a server does not need

    session = botocore.session.Session()
    session.set_credentials("local", "local")
    return session


class _Host:
    """The thread with the event loop, the listening socket, and moto."""

    def __init__(
        self,
        kinesis: LocalKinesis,
        guard: Guard,
        address: str,
        port: int,
        moto: Moto | LeaseTables,
        *,
        tls: ssl.SSLContext | None,
        cloudwatch: bool,
    ) -> None:
        self._tls = tls
        self._cloudwatch = cloudwatch
        self._kinesis = kinesis
        self._guard = guard
        self.moto = moto
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._socket = _bind(address, port)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(
            target=self._run, name=f"sparkinesis-local-{self.port}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            self._socket.close()
            raise LocalServerError(f"the local server did not start: {self._failure}") from (
                self._failure
            )

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        # Before joining: the loop would wait for a call that moto is serving.
        self.moto.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits in start()
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        protocol, connections = self._protocol()
        loop = self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = await loop.create_server(protocol, sock=self._socket, ssl=self._tls)
        self._ready.set()
        await self._stopping.wait()
        # asyncio makes an accepted connection some turns of the loop later. If the server is closed
        # by then, asyncio would leave the socket open.
        loop.remove_reader(self._socket)
        for _ in range(_TURNS):
            for connection in list(connections.connections):
                connection.transport.abort()
            await asyncio.sleep(0)
        server.close()
        tasks = list(connections.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # One turn of the loop for the aborted transports to close their sockets.
        await asyncio.sleep(0)

    def _protocol(self) -> tuple[Any, Any]:
        """Return a factory of protocols, and the state with their connections and tasks.

        HTTP/1.1 is uvicorn's protocol (see `http1`) without uvicorn's server, which installs signal
        handlers and polls for its end ten times a second. HTTP/2 is ours, on h2 (see `http2`).
        """
        try:
            from uvicorn.config import Config  # noqa: PLC0415
            from uvicorn.server import ServerState  # noqa: PLC0415

            from sparkinesis.local.admission import Bodies  # noqa: PLC0415
            from sparkinesis.local.wire.http import App  # noqa: PLC0415
            from sparkinesis.local.wire.http1 import Http1  # noqa: PLC0415
            from sparkinesis.local.wire.http2 import Http2  # noqa: PLC0415
        except ImportError as error:
            raise LocalServerError(
                f"{error.name}, which the local server needs, is not installed: "
                "pip install 'sparkinesis[local]'"
            ) from error

        app = App(self._kinesis, self.moto, self._guard, Bodies(), cloudwatch=self._cloudwatch)
        config = Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=60,
        )
        config.load()
        state = ServerState()

        def http1() -> Any:
            return Http1(config, state)

        def http2() -> Http2:
            return Http2(app, state.connections, state.tasks)

        return lambda: ProtocolDetector(http1, http2, state.connections), state


def _checked_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise LocalServerError(
            f"{text!r} is no address to listen on: give an IP address, as in 127.0.0.1 (this "
            "machine only) or 0.0.0.0 (every interface, as a container needs)"
        ) from None


def _tls_context(certificate: str | os.PathLike[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate)
    except OSError as error:
        raise LocalServerError(
            f"{os.fspath(certificate)} cannot serve TLS ({error.strerror or error}): give a PEM "
            "file with a private key and its certificate"
        ) from error
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _bind(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Without the protocol's number asyncio keeps Nagle's algorithm: 40 ms for every response.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise LocalServerError(
            f"cannot listen on port {port} of {address} ({error.strerror}); choose another port, "
            "or 0 for a free one"
        ) from error
    return listener
