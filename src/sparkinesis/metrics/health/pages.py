"""A small HTTP server with the pages ``/livez``, ``/readyz``, ``/status`` and ``/metrics``.

It answers GET and HEAD, one request for each connection, in few threads: a check does not wait for
connections that are never used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.metrics.health.http_address import Address, is_own_host
from sparkinesis.metrics.health.liveness import CHECK_EVERY
from sparkinesis.metrics.tally import Series, Tally

_log = logging.getLogger(__name__)

_MOST = 16
"""The most connections that are answered at a time. The oldest goes for another one."""
_IDLE = 5.0
"""Seconds in which a client must send its request, or take a part of the answer."""
_WHOLE = 20.0
"""Seconds after which a connection is closed, whatever its client does."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request."""

    accept: str = ""
    """The header Accept."""


class Response(msgspec.Struct, frozen=True):
    """The answer to a request."""

    body: bytes
    content_type: str = "application/json"
    status: int = HTTPStatus.OK


Page = Callable[[HttpRequest], Response]
"""Answers the requests for one path. Called in any thread; what it raises is answered with 500."""


def as_json(value: object, status: int = HTTPStatus.OK) -> Response:
    """Return a value of msgspec's or of dataclasses as a JSON answer."""
    return Response(msgspec.json.encode(value) + b"\n", status=status)


class HealthServer:
    """Serves pages by path until it is closed.

    The port is taken when the server is made. Raises `OptionError` if it cannot be: ``option``
    names the address in the message.
    """

    def __init__(self, address: Address, option: str = "http") -> None:
        try:
            self._server = _Server(address)
        except OSError as error:
            raise OptionError(
                f"{option} is '{address}', and this process cannot listen there: "
                f"{error.strerror or error}. Choose another port, or end the program that has it."
            ) from None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The server's URL on this machine, with the port that it has."""
        host, port = self._server.server_address[:2]
        return f"http://{Address(str(host), int(port))}"

    def serve(self, pages: Mapping[str, Page], tick: Callable[[], object] = lambda: None) -> None:
        """Begin to answer, or answer with other pages from now on.

        tick: called every `CHECK_EVERY` seconds.
        """
        self._server.pages = dict(pages)
        self._server.tick = tick
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._server.serve_forever,
                args=(CHECK_EVERY,),
                name="sparkinesis-http",
                daemon=True,
            )
            self._thread.start()

    def close(self) -> None:
        """Stop, and free the port."""
        if self._thread is not None:
            self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = 64
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Address) -> None:
        self.pages: Mapping[str, Page] = {}
        self.tick: Callable[[], object] = lambda: None
        self.address = address
        self._open: dict[socket.socket, float] = {}
        """The connections, the oldest first, and the time at which each must end."""
        self._guard = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            for oldest in list(self._open)[: max(0, len(self._open) - _MOST + 1)]:
                self._end(oldest)
            self._open[request] = time.monotonic() + _WHOLE
        super().process_request(request, client_address)

    def _end(self, connection: socket.socket) -> None:
        """End the thread that waits for a connection. The caller holds the guard."""
        del self._open[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        now = time.monotonic()
        with self._guard:
            for connection in [one for one, end in self._open.items() if end <= now]:
                self._end(connection)
        try:
            self.tick()
        except Exception:  # noqa: BLE001 - the server has to go on answering
            _log.exception("A look at the health of this process failed.")

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        _log.debug("A connection of %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "sparkinesis"
    sys_version = ""
    timeout = _IDLE

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _refuse(self) -> None:
        text = f"{self.command} is not taken here: only GET and HEAD are."
        self._send(_refusal(text, HTTPStatus.METHOD_NOT_ALLOWED), {"Allow": "GET, HEAD"})

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _answer(self, *, with_body: bool) -> None:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1 or not is_own_host(hosts[0] if hosts else None, self.server.address):
            text = f"This server answers to localhost only, not to the host {hosts[0][:100]!r}."
            self._send(_refusal(text, HTTPStatus.FORBIDDEN), with_body=with_body)
            return
        path = self.path.partition("?")[0]
        page = self.server.pages.get(path)
        if page is None:
            paths = ", ".join(self.server.pages)
            text = f"There is no {path[:100]} here, only {paths}."
            self._send(_refusal(text, HTTPStatus.NOT_FOUND), with_body=with_body)
            return
        try:
            response = page(HttpRequest(self.headers.get("Accept", "")))
        except Exception as error:  # noqa: BLE001 - the client gets an error
            _log.exception("The answer to %s could not be made.", path)
            text = f"The answer could not be made: {type(error).__name__}. The log has more."
            response = _refusal(text, HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(response, with_body=with_body)

    def _send(
        self,
        response: Response,
        headers: Mapping[str, str] | None = None,
        *,
        with_body: bool = True,
    ) -> None:
        self.close_connection = True
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        _log.debug(format, *args)


def _refusal(text: str, status: int) -> Response:
    return Response(json.dumps({"error": text}).encode() + b"\n", status=status)


Reasons = Callable[[], Iterable[str]]
"""Returns why something is not as it should be; nothing if it is."""
Groups = Callable[[], Iterable[tuple[Mapping[str, str], Iterable[Series]]]]
"""Returns series, each group with the labels of its worker, fleet or query."""


class ServedTally(Tally):
    """The measurements of a process that serves them until it closes its metrics."""

    def __init__(self, server: HealthServer) -> None:
        super().__init__()
        self.server = server

    @classmethod
    def starting(cls, address: Address, labels: Mapping[str, str]) -> ServedTally:
        """Take the port, and answer that the process lives and is not ready yet.

        Raises `OptionError` if the port cannot be taken.
        """
        tally = cls(HealthServer(address))
        why = ("it is starting",)
        tally.answer(
            labels,
            live=tuple,
            ready=lambda: why,
            status=lambda: {**labels, "not_live": (), "not_ready": why},
        )
        return tally

    def answer(
        self,
        labels: Mapping[str, str],
        *,
        live: Reasons,
        ready: Reasons,
        status: Callable[[], object],
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """Answer from now on with these, and with the measurements, which have the labels.

        look: called from time to time.
        """

        def groups() -> list[tuple[Mapping[str, str], list[Series]]]:
            return [(labels, self.series())]

        self.server.serve(pages(live=live, ready=ready, status=status, groups=groups), look)

    def close(self) -> None:
        self.server.close()


def pages(
    *, live: Reasons, ready: Reasons, status: Callable[[], object], groups: Groups
) -> dict[str, Page]:
    """Return the pages by path.

    status: a value that msgspec can write as JSON.
    """
    return {
        "/livez": lambda _: _check("live", live()),
        "/readyz": lambda _: _check("ready", ready()),
        "/status": lambda _: as_json(status()),
        "/metrics": lambda request: _metrics(groups, request),
    }


def _check(name: str, reasons: Iterable[str]) -> Response:
    found = list(reasons)
    status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
    return as_json({name: not found, "reasons": found}, status)


def _metrics(groups: Groups, request: HttpRequest) -> Response:
    # An extra: without it, the other pages are served.
    from sparkinesis.metrics.prometheus import exposition  # noqa: PLC0415

    try:
        body, content_type = exposition(groups(), request.accept)
    except OptionError as error:
        text = json.dumps({"error": str(error)}).encode() + b"\n"
        return Response(text, status=HTTPStatus.NOT_IMPLEMENTED)
    return Response(body, content_type)
