"""The web server of the page: Bokeh's, on loopback, with orders by POST.

The page listens on loopback, but a browser carries the requests of any web page there. So a
request has to name this machine (`is_local`: no foreign name that an attacker lets point here), a
connection for updates has to come from the page itself, and an order to write has to bring the
token, which only the printed address has.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import urlsplit

import msgspec
from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.resources import Resources
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import OutputTransform, RequestHandler

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.ui.orders import Confirmed, Orders, Wanted

_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        # Bokeh writes scripts and styles into the page, and compiles the templates of cells.
        "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Sent with every answer. A browser asks no other host for anything, and shows the page in no
frame of another one."""

_NAMES = ("127.0.0.1", "localhost")


def is_local(host: str | None) -> bool:
    """Return True for a ``Host`` of this machine, with any port: one may be forwarded here."""
    if not host:
        return False
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return False
    return parts.hostname in _NAMES and host == parts.netloc and "@" not in host


def _is_same_origin(origin: str | None, host: str | None) -> bool:
    """Return True if the page itself makes the request, not a page of another server here."""
    return is_local(host) and origin == f"http://{host}"


def refusal_of_order(headers: Mapping[str, str], token: str) -> str | None:
    """Return why an order to write is refused; None if it is not."""
    if not _is_same_origin(headers.get("Origin"), headers.get("Host")):
        return "The request does not come from this page."
    if headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
        return "The request is not JSON."
    given = headers.get("X-Sparkinesis-Token", "")
    if not compare_digest(given.encode(), token.encode()):
        return (
            "The request does not have the token. Open the address that was printed when the page "
            "was started: its end is the token."
        )
    return None


_log = logging.getLogger(__name__)

_ADDRESS = "127.0.0.1"
_LONGEST_BODY = 64 * 1024
_IDLE = 60.0
"""Seconds after which a connection without a request is closed."""


class PageServer:
    """Serves a page in a thread of its own; a context manager.

    open_page: fills a new browser's document. token: what an order has to bring.
    """

    def __init__(
        self, open_page: Callable[[Document], None], orders: Orders, token: str, port: int
    ) -> None:
        """Bind the port. Raises `OptionError` if it is taken."""
        try:
            self._socket = socket.create_server((_ADDRESS, port))
        except (OSError, OverflowError) as error:
            raise OptionError(
                f"The page cannot be served on port {port}: {error}. Choose another one by --port; "
                "0 takes any that is free."
            ) from None
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._open_page = open_page
        self._orders = orders
        self._token = token
        self._loop: IOLoop | None = None
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ui-server", daemon=True)

    def __enter__(self) -> PageServer:
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving; browsers say that they are no longer connected."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.add_callback(loop.stop)
            self._thread.join(10.0)

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(asyncio.new_event_loop())
            loop = IOLoop.current()
            server = self._server(loop)
            server.start()
        except BaseException as error:  # noqa: BLE001 - raised by `__enter__`
            self._failure = error
            self._is_ready.set()
            return
        self._loop = loop
        self._is_ready.set()
        try:
            loop.start()
        finally:
            server.stop()
            loop.close(all_fds=True)  # also the connections for updates, which see the end so

    def _confirm(self, confirmed: Confirmed) -> dict[str, str]:
        return {"done": self._orders.carry_out(confirmed)}

    def _server(self, loop: IOLoop) -> BaseServer:
        plan = {"kind": Wanted, "carry_out": self._orders.plan, "token": self._token}
        confirm = {**plan, "kind": Confirmed, "carry_out": self._confirm}
        tornado = _Guarded(
            {"/": Application(FunctionHandler(self._open_page))},
            extra_patterns=[("/plan", _OrderHandler, plan), ("/confirm", _OrderHandler, confirm)],
            extra_websocket_origins=[f"{name}:*" for name in (_ADDRESS, "localhost")],
            use_index=False,
            redirect_root=False,
            generate_session_ids=True,
            unused_session_lifetime_milliseconds=10_000,
            check_unused_sessions_milliseconds=5_000,
        )
        tornado.add_transform(_Headers)
        http = HTTPServer(
            tornado,
            max_body_size=_LONGEST_BODY,
            max_header_size=_LONGEST_BODY,
            idle_connection_timeout=_IDLE,
            body_timeout=_IDLE,
        )
        http.add_sockets([self._socket])
        return BaseServer(loop, tornado, http)


class _Guarded(BokehTornado):  # type: ignore[misc, unused-ignore]
    """Bokeh's application behind the guard."""

    def resources(self, absolute_url: Any = None) -> Resources:  # noqa: ARG002 - Bokeh gives it
        """Return where Bokeh's scripts are: here, whatever the environment says.

        The parts for formulas and for WebGL are not used.
        """
        found = Resources(mode="server", root_url="/")
        found.components = ["bokeh", "bokeh-widgets", "bokeh-tables"]
        return found

    def get_handler_delegate(
        self, request: HTTPServerRequest, target_class: Any, *given: Any, **named: Any
    ) -> Any:
        """Put the guard before each handler of Bokeh and of this module."""
        host, origin = request.headers.get("Host"), request.headers.get("Origin")
        is_update = request.headers.get("Upgrade", "").lower() == "websocket"
        if not is_local(host):
            target_class, given, named = _Refused, ({"why": _WRONG_HOST},), {}
        elif is_update and not _is_same_origin(origin, host):
            target_class, given, named = _Refused, ({"why": _WRONG_ORIGIN},), {}
        return super().get_handler_delegate(request, target_class, *given, **named)


_WRONG_HOST = "This page is served to this machine only, under the name 127.0.0.1 or localhost."
_WRONG_ORIGIN = "Updates are for the page itself."


class _Headers(OutputTransform):
    """Adds the headers of `guard` to every answer."""

    def transform_first_chunk(
        self,
        status_code: int,
        headers: HTTPHeaders,
        chunk: bytes,
        finishing: bool,  # noqa: ARG002 - as Tornado calls it
    ) -> tuple[int, HTTPHeaders, bytes]:
        headers.update(_HEADERS)
        return status_code, headers, chunk


class _Refused(RequestHandler):
    def initialize(self, why: str) -> None:
        self._why = why

    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(self._why)


class _OrderHandler(RequestHandler):
    """A POST of an order; nothing else."""

    def initialize(self, kind: type[Any], carry_out: Callable[[Any], Any], token: str) -> None:
        self._kind = kind
        self._carry_out = carry_out
        self._token = token

    def prepare(self) -> None:
        if self.request.method != "POST":
            return  # refused by Tornado: there is no such method
        why = refusal_of_order(self.request.headers, self._token)
        if why is not None:
            self.set_status(403)
            self.finish({"error": why})

    async def post(self) -> None:
        try:
            order = msgspec.json.decode(self.request.body, type=self._kind)
        except msgspec.DecodeError as error:
            self.set_status(400)
            self.finish({"error": f"The request is no order: {error}."})
            return
        try:
            # In a thread: it calls AWS.
            found = await IOLoop.current().run_in_executor(None, self._carry_out, order)
        except SparkinesisError as error:
            self.set_status(409)
            self.finish({"error": str(error)})
        except Exception:  # noqa: BLE001 - its text may hold a secret
            _log.exception("An order of the page failed.")
            self.set_status(500)
            self.finish({"error": "The order failed; the log of the page says why."})
        else:
            self.finish(msgspec.json.encode(found))
