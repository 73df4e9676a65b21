"""A port before a local server's STS that keeps what STS handed out, for tests to look for."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import urllib3

DENIED = (
    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::123456789012:user/u"
    " is not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>"
)


@dataclass(frozen=True)
class Assumed:
    """One AssumeRole call and what it gave."""

    request: dict[str, str]
    signed_by: str
    access_key: str
    secret_key: str
    token: str


@dataclass
class RecordedSts:
    """The credentials handed out so far, and those to hand out from now on, by session name."""

    endpoint_url: str = ""
    assumed: list[Assumed] = field(default_factory=list)
    lifetimes: dict[str, float] = field(default_factory=dict)
    """Seconds until credentials expire; an hour by default."""
    allowed: dict[str, int] = field(default_factory=dict)
    """The number of times that the role may be assumed, by role; unlimited by default."""

    def select(self, session: str) -> list[Assumed]:
        return [a for a in list(self.assumed) if a.request["RoleSessionName"] == session]

    def access_keys(self, session: str) -> list[str]:
        return [assumed.access_key for assumed in self.select(session)]

    @property
    def secrets(self) -> set[str]:
        return {s for a in self.assumed for s in (a.access_key, a.secret_key, a.token)}


def _text(name: str, body: str) -> str:
    found = re.search(f"<{name}>(.+?)</{name}>", body, re.DOTALL)
    assert found, body
    return found[1].strip()


@contextmanager
def recorded_sts(server_url: str) -> Iterator[RecordedSts]:
    """Passes calls on to the STS of ``server_url`` and records them."""
    recorded = RecordedSts()
    pool = urllib3.PoolManager()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = dict(parse_qsl(body.decode()))
            session = request["RoleSessionName"]
            if len(recorded.select(session)) >= recorded.allowed.get(session, 1_000_000):
                self._answer(403, DENIED)
                return
            passed = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            answer = pool.request("POST", server_url, body=body, headers=passed)
            text = answer.data.decode()
            if session in recorded.lifetimes:
                expiry = datetime.now(timezone.utc) + timedelta(seconds=recorded.lifetimes[session])
                text = text.replace(_text("Expiration", text), expiry.isoformat())
            signed_by = re.search("Credential=([^/]+)/", self.headers["Authorization"])
            assert signed_by
            names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
            recorded.assumed.append(
                Assumed(request, signed_by[1], *(_text(name, text) for name in names))
            )
            self._answer(answer.status, text)

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        recorded.endpoint_url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield recorded
        finally:
            http.shutdown()
            thread.join()
            pool.clear()
