from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.metrics.health import pages as module
from sparkinesis.metrics.health.http_address import Address, parse_address
from sparkinesis.metrics.health.pages import HealthServer, HttpRequest, Response, as_json, pages


def broken(_: HttpRequest) -> Response:
    raise RuntimeError("secret")


PAGES = {
    "/livez": lambda _: as_json({"live": False}, 503),
    "/accept": lambda request: Response(request.accept.encode(), "text/plain"),
    "/broken": broken,
}


@pytest.fixture
def server() -> Iterator[HealthServer]:
    running = HealthServer(Address("127.0.0.1", 0))
    running.serve(PAGES)
    yield running
    running.close()


def connect(server: HealthServer) -> socket.socket:
    parts = urlsplit(server.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def ask(
    server: HealthServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_a_page_gives_status_type_and_body(server: HealthServer) -> None:
    status, headers, body = ask(server, "/livez?verbose")
    assert (status, json.loads(body)) == (503, {"live": False})
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"

    assert ask(server, "/accept", Accept="text/x")[2] == b"text/x"
    status, headers, body = ask(server, "/livez", "HEAD")
    assert (status, headers["Content-Length"], body) == (503, "15", b"")


def test_an_unknown_path_names_those_that_there_are(server: HealthServer) -> None:
    status, _, body = ask(server, "/")
    assert status == 404
    assert "/livez, /accept" in json.loads(body)["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_nothing_but_get_and_head_is_taken(server: HealthServer, method: str) -> None:
    status, headers, _ = ask(server, "/livez", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_name_that_is_not_its_own_is_refused(server: HealthServer) -> None:
    status, _, body = ask(server, "/livez", Host="evil.example")
    assert status == 403
    assert b"evil.example" in body
    assert ask(server, "/livez", Host="localhost:1")[0] == 503


def test_an_error_is_answered_and_not_shown(server: HealthServer) -> None:
    status, _, body = ask(server, "/broken")
    assert status == 500
    assert b"RuntimeError" in body
    assert b"secret" not in body


def test_connections_that_send_nothing_keep_no_check_waiting(server: HealthServer) -> None:
    silent = [connect(server) for _ in range(3 * module._MOST)]
    try:
        for one in silent[::2]:
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: ")
        assert ask(server, "/livez")[0] == 503
        handlers = [t for t in threading.enumerate() if "process_request_thread" in t.name]
        assert len(handlers) <= 2 * module._MOST  # some are just ending
        assert silent[0].recv(1) == b""
    finally:
        for one in silent:
            one.close()


@pytest.mark.parametrize(
    ("limit", "seconds", "sent"),
    [("_WHOLE", 0.0, b"GET /livez"), ("_Handler.timeout", 0.1, b"")],
    ids=["drop by drop", "nothing"],
)
def test_a_client_that_does_not_send_a_request_is_closed(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch, limit: str, seconds: float, sent: bytes
) -> None:
    monkeypatch.setattr(f"{module.__name__}.{limit}", seconds)
    with connect(server) as slow:
        slow.sendall(sent)
        assert slow.recv(1) == b""


def test_it_looks_again_and_again_also_after_an_error() -> None:
    looks = threading.Semaphore(0)

    def look() -> None:
        looks.release()
        raise RuntimeError

    server = HealthServer(Address("127.0.0.1", 0))
    try:
        server.serve(PAGES, look)
        for _ in range(3):
            assert looks.acquire(timeout=60)
        assert ask(server, "/livez")[0] == 503
    finally:
        server.close()


def test_pages_may_be_replaced(server: HealthServer) -> None:
    server.serve({"/new": lambda _: as_json({})})
    assert ask(server, "/new")[0] == 200
    assert ask(server, "/livez")[0] == 404


def test_an_address_that_cannot_be_used_is_a_clear_error(server: HealthServer) -> None:
    taken = urlsplit(server.url).netloc
    with pytest.raises(OptionError, match=f"http is '{taken}'.*Choose another port"):
        HealthServer(parse_address("http", taken))
    with pytest.raises(OptionError, match=r"http is 'no-such\.invalid:1'"):
        HealthServer(Address("no-such.invalid", 1))


def test_without_the_extra_metrics_are_not_implemented_and_the_rest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = pages(live=tuple, ready=tuple, status=dict, groups=tuple)
    answer = found["/metrics"](HttpRequest())
    assert answer.status == 501
    assert "sparkinesis[prometheus]" in json.loads(answer.body)["error"]
    assert found["/livez"](HttpRequest()).status == 200
