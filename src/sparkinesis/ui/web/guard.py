"""Which requests the page takes. Pure.

The page listens on loopback, but a browser carries the requests of any web page there. So a
request has to name this machine (`is_local`: no foreign name that an attacker lets point here), a
connection for updates has to come from the page itself (`is_same_origin`), and an order to write
has to bring the token, which only the printed address has.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from urllib.parse import urlsplit

HEADERS: Mapping[str, str] = {
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


def is_same_origin(origin: str | None, host: str | None) -> bool:
    """Return True if the page itself makes the request, not a page of another server here."""
    return is_local(host) and origin == f"http://{host}"


def refusal_of_order(headers: Mapping[str, str], token: str) -> str | None:
    """Return why an order to write is refused; None if it is not."""
    if not is_same_origin(headers.get("Origin"), headers.get("Host")):
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
