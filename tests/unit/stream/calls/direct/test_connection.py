"""What a call over a connection gives, takes, keeps and closes, whatever the server does."""

from __future__ import annotations

import gc
import os
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock

import pytest
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.httpsession import create_urllib3_context, get_cert_path

from sparkinesis.metrics.health.liveness import CONNECTING, PATIENCE, SignOfLife, expect
from sparkinesis.stream.calls.answers.guards import Bound
from sparkinesis.stream.calls.direct import connection
from sparkinesis.stream.calls.direct.connection import (
    ConnectionPool,
    own_certificates,
    tls_context,
    trusted,
)
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer

URL = "http://kinesis.test"
BOUND = Bound(20.0, 100)
REQUEST = b"POST / HTTP/1.1\r\n\r\n"

Piece: TypeAlias = bytes | BaseException | None
"""What a read finds: bytes, an error, or the server's end of the connection (None)."""


def answer(body: bytes = b"{}", status: str = "200 OK", version: str = "1.1", **more: str) -> bytes:
    headers = {"Content-Length": str(len(body)), **more}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/{version} {status}", *lines, "", ""]).encode() + body


def chunked(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def _nothing() -> None:
    pass


class Wire(socket.socket):
    """Our end of a connection, to a server that has an answer for each request.

    An answer arrives as a whole, or in pieces, each when it is read.
    """

    def __init__(self, *answers: bytes | Sequence[Piece]) -> None:
        ours, self.server = socket.socketpair()
        super().__init__(ours.family, ours.type, ours.proto, ours.detach())
        self.answers = deque([one] if isinstance(one, bytes) else one for one in answers)
        self.pieces: deque[Piece] = deque()
        self.options: list[tuple[Any, ...]] = []
        self.waits: list[float | None] = []
        """The timeouts of the writes and reads."""
        self.before_first: Callable[[], object] = _nothing
        self.before_each: Callable[[], object] = _nothing

    @property
    def is_open(self) -> bool:
        return self.fileno() >= 0

    def setsockopt(self, *option: Any) -> None:
        self.options.append(option)

    def sendall(self, data: Any, /, *_: Any) -> None:
        self._wait()
        assert data == REQUEST
        self.pieces.extend(self.answers.popleft())

    def recv(self, most: int, /, *more: Any) -> bytes:
        self._arrive()
        return super().recv(most, *more)

    def recv_into(self, buffer: Any, /, *more: Any) -> int:
        self._arrive()
        return super().recv_into(buffer, *more)

    def _arrive(self) -> None:
        self._wait()
        if not self.pieces:
            return
        piece = self.pieces.popleft()
        if isinstance(piece, BaseException):
            raise piece
        if piece is None:
            self.server.shutdown(socket.SHUT_WR)
        else:
            self.server.sendall(piece)

    def _wait(self) -> None:
        self.waits.append(self.gettimeout())
        self.before_each()
        if len(self.waits) == 1:
            self.before_first()


class Network:
    """The connections that are made, in turn, or what is raised in their place."""

    def __init__(self) -> None:
        self.wires: deque[Wire | BaseException] = deque()
        self.made: list[Wire] = []
        self.asked: list[tuple[Any, float]] = []
        self.before_each: Callable[[], object] = _nothing
        self._really = socket.create_connection

    def wire(self, *answers: bytes | Sequence[Piece]) -> Wire:
        self.wires.append(made := Wire(*answers))
        self.made.append(made)
        return made

    def connect(self, address: Any, timeout: float, *others: Any, **more: Any) -> Any:
        if address[0] in {"127.0.0.1", "localhost"}:  # a thread of another test's, which still runs
            return self._really(address, timeout, *others, **more)
        self.asked.append((address, timeout))
        self.before_each()
        made = self.wires.popleft()
        if isinstance(made, BaseException):
            raise made
        made.settimeout(timeout)
        return made


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    made = Network()
    monkeypatch.setattr(socket, "create_connection", made.connect)
    yield made
    for wire in made.made:
        wire.close()
        wire.server.close()


def connections(url: str = URL, context: Any = None, **options: Any) -> ConnectionPool:
    return ConnectionPool(url, context, **{"read_timeout": 10.0, "most_idle": 2, **options})


def ahead(pool: ConnectionPool, request: bytes, bound: Bound) -> HttpAnswer:
    """Send a request ahead, and receive the answer to it."""
    if not pool._idle:
        pool._idle.append(pool._connect())
    sent = pool.send_ahead(request, bound)
    assert sent is not None
    return pool.receive(sent)


CALLS: dict[str, Callable[[ConnectionPool, bytes, Bound], HttpAnswer]] = {
    "exchange": ConnectionPool.exchange,
    "send_ahead": ahead,
    "begin": ConnectionPool.begin,
}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://kinesis.test", ("kinesis.test", 80)),
        ("https://kinesis.test", ("kinesis.test", 443)),
        ("http://kinesis.test:4567/x", ("kinesis.test", 4567)),
        ("https://[::1]:8443", ("::1", 8443)),
        ("http:///x", ("", 80)),  # of None, the socket module makes this machine
    ],
)
def test_a_call_goes_to_the_endpoints_host_and_port(
    network: Network, url: str, address: tuple[str, int]
) -> None:
    network.wire(answer())
    connections(url).exchange(REQUEST, BOUND)
    assert network.asked == [(address, 10.0)]


def test_an_answer_is_given_as_it_came_and_its_connection_has_the_next_one(
    network: Network,
) -> None:
    wire = network.wire(
        answer(b"{}", X_Amz_Id=" 7 "),
        answer(b"[1]", "400 Bad Request"),
        chunked(b"[2]"),
        answer(b"[3]", "200 OK", "1.0"),
    )
    other = network.wire(answer(b"[4]"))
    made = connections()
    first = made.exchange(REQUEST, BOUND)
    assert (first.status, first.body, first.stream) == (200, b"{}", None)
    assert first.headers == {"content-length": "2", "x-amz-id": "7"}
    assert type(first.body) is bytes, "which came with the head, and is not copied"
    found = [made.exchange(REQUEST, BOUND) for _ in range(4)]
    assert [(one.status, one.body) for one in found] == [
        (400, b"[1]"),
        (200, b"[2]"),
        (200, b"[3]"),
        (200, b"[4]"),
    ]
    assert not wire.is_open, "HTTP/1.0 ends a connection behind each answer"
    assert other.is_open
    assert len(network.asked) == 2


@pytest.mark.parametrize("word", ["close", "Close"])
def test_a_connection_that_is_to_be_closed_is_closed(network: Network, word: str) -> None:
    wire = network.wire(answer(Connection=word))
    connections().exchange(REQUEST, BOUND)
    assert not wire.is_open


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_an_answer_without_a_body_ends_with_its_head(network: Network, status: str) -> None:
    wire = network.wire(f"HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n".encode(), answer(b"[1]"))
    made = connections()
    assert made.exchange(REQUEST, BOUND).body == b""
    assert made.exchange(REQUEST, BOUND).body == b"[1]"
    assert wire.is_open


@pytest.mark.parametrize("form", [answer, chunked])
@pytest.mark.parametrize("call", CALLS)
def test_an_answer_may_be_as_long_as_those_of_its_operation(
    network: Network, form: Callable[..., bytes], call: str
) -> None:
    status = "200 OK" if call == "exchange" else "300 Multiple Choices"
    network.wire(form(b"x" * 100, status))
    longer = network.wire(form(b"x" * 101, status))
    assert CALLS[call](connections(), REQUEST, BOUND).body == b"x" * 100
    with pytest.raises(HTTPClientError, match="101"):
        CALLS[call](connections(), REQUEST, BOUND)
    assert not longer.is_open


def test_the_headers_of_an_answer_and_of_interim_ones_have_a_bound(network: Network) -> None:
    """Else a server could hold the call, and fill the memory."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: "
    network.wire(interim * 2_500 + answer())
    network.wire([start + b"x" * (65_536 - len(start)), b"\r\n\r\n{}"])
    for _ in range(2):
        assert connections().exchange(REQUEST, BOUND).body == b"{}"
    endless = [
        network.wire([interim * 2_500] * 2 + [answer()]),
        network.wire([start + b"x" * (65_536 - len(start)), b"x", b"\r\n\r\n{}"]),
    ]
    for wire in endless:
        with pytest.raises(ConnectionClosedError, match=URL):
            connections().exchange(REQUEST, BOUND)
        assert not wire.is_open


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        "HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\nTRANSFER-ENCODING: chunked",
        "HTTP/1.1 200 OK\r\nContent-Length: +2",
        "HTTP/1.1 200 OK\r\nContent-Length: -1",
        "HTTP/1.1 200 OK\r\nContent-Length: \u00b2",
        "HTTP/1.1 0200 OK\r\nContent-Length: 2",
        "HTTP/1.1 200 OK\r\nA : x",
        "HTTP/1.1 200 OK\r\n: x",
    ],
)
@pytest.mark.parametrize("call", CALLS)
def test_an_answer_whose_end_is_in_doubt_is_none(network: Network, call: str, head: str) -> None:
    wire = network.wire(f"{head}\r\n\r\n{{}}".encode("latin-1"))
    with pytest.raises(ConnectionClosedError, match=URL):
        CALLS[call](connections(), REQUEST, BOUND)
    assert not wire.is_open


@pytest.mark.parametrize("left", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", None])
def test_a_connection_with_bytes_that_nobody_asked_for_is_closed(
    network: Network, left: bytes | None
) -> None:
    """Also one that the server has closed."""
    wire = network.wire(answer(), answer())
    network.wire(answer(b"[1]"))
    made = connections()
    made.exchange(REQUEST, BOUND)
    if left is None:
        wire.server.close()
    else:
        wire.server.sendall(left)
    assert made.exchange(REQUEST, BOUND).body == b"[1]"
    assert not wire.is_open


def test_a_child_of_a_fork_takes_no_connection_of_its_parent(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one of them would get the other's answer."""
    parents = network.wire(answer(), answer())
    network.wire(answer(b"[1]"), answer(b"[2]"))
    made = connections()
    made.exchange(REQUEST, BOUND)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert [made.exchange(REQUEST, BOUND).body for _ in range(2)] == [b"[1]", b"[2]"]
    assert parents.is_open
    assert len(network.asked) == 2


def test_a_server_may_refuse_a_request_before_it_has_read_all_of_it(network: Network) -> None:
    wire = network.wire(b"")
    wire.server.sendall(answer(b"no", "413 Too Large"))

    def break_off() -> None:
        raise BrokenPipeError

    wire.before_first = break_off
    assert connections().exchange(REQUEST, BOUND).status == 413


def test_a_header_may_come_twice_that_says_nothing_of_the_end(network: Network) -> None:
    network.wire(b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nContent-Length: 2\r\n\r\n{}")
    assert connections().exchange(REQUEST, BOUND).body == b"{}"


HEAD = answer(b"[1]")[:-3]
FAILURES: dict[str, tuple[list[Piece], type[BaseException]]] = {
    "an end in the head": ([b"HTTP/1.1 20", None], ConnectionClosedError),
    "an end in the body": ([HEAD + b"[1", None], ConnectionClosedError),
    "no HTTP": ([b"SSH-2.0\r\n\r\n"], ConnectionClosedError),
    "no head": ([b"\r\n\r\n", TimeoutError()], ConnectionClosedError),
    "a reset": ([ConnectionResetError()], ConnectionClosedError),
    "silence": ([HEAD + b"[", TimeoutError()], ReadTimeoutError),
    "a signal": ([HEAD[:9], KeyboardInterrupt()], KeyboardInterrupt),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_leaves_no_connection(network: Network, call: str, failure: str) -> None:
    """The rest of its answer would be taken for that of the next call."""
    pieces, raised = FAILURES[failure]
    if call == "begin":
        pieces = [one.replace(b"200", b"500") if isinstance(one, bytes) else one for one in pieces]
    wire = network.wire(pieces)
    made = connections()
    with pytest.raises(raised) as told:
        CALLS[call](made, REQUEST, BOUND)
    assert type(told.value) is raised
    assert not wire.is_open
    network.wire(answer(b"[2]"))
    assert made.exchange(REQUEST, BOUND).body == b"[2]"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        (100.0, [3.0, 3.0, 3.0, 3.0, 3.0]),
        (5.5, [3.0, 3.0, 3.0, 2.5, 1.5]),
        (4.0, [3.0, 3.0, 2.0, 1.0]),
    ],
)
def test_each_wait_ends_with_the_call_or_with_the_patience_for_a_read(
    network: Network,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    seconds: float,
    waits: list[float],
) -> None:
    """Each write or read takes a second: of the request, of the head twice, of the body twice."""
    now = [1000.0]

    def take_a_second() -> None:
        now[0] += 1.0

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    whole = answer(b"x" * 90, "400 Bad Request" if call == "begin" else "200 OK")
    pieces = [whole[:9], whole[9:-80], whole[-80:-40], whole[-40:]]
    wire = network.wire(answer(), pieces)
    made = connections(read_timeout=3.0)
    made.exchange(REQUEST, Bound(2.0, 100))
    wire.waits.clear()
    wire.before_each = take_a_second
    if len(waits) == 5:
        assert CALLS[call](made, REQUEST, Bound(seconds, 100)).body == b"x" * 90
    else:
        with pytest.raises(ReadTimeoutError, match=URL):
            CALLS[call](made, REQUEST, Bound(seconds, 100))
    assert wire.waits == waits


def test_time_that_passes_before_an_answer_is_awaited_is_the_calls(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    wire = network.wire(answer(), answer(), answer())
    made = connections(read_timeout=10.0)
    made.exchange(REQUEST, BOUND)
    for passed, wait in ((15.0, 5.0), (21.0, None)):
        sent = made.send_ahead(REQUEST, BOUND)
        assert sent is not None
        now[0] += passed
        if wait is not None:
            made.receive(sent)
            assert wire.waits[-1] == wait
            continue
        with pytest.raises(ReadTimeoutError, match=URL):
            made.receive(sent)
    assert not wire.is_open


def test_a_connection_whose_answer_nobody_awaits_is_closed(network: Network) -> None:
    wire = network.wire(answer(), answer())
    made = connections()
    assert made.send_ahead(REQUEST, BOUND) is None  # none is kept
    made.exchange(REQUEST, BOUND)
    sent = made.send_ahead(REQUEST, BOUND)
    assert made.send_ahead(REQUEST, BOUND) is None
    assert wire.is_open
    del sent
    assert not wire.is_open


def test_a_stream_owns_its_connection_and_is_not_bound_by_the_call(network: Network) -> None:
    wire = network.wire(answer(), answer(b"events", "299 OK", A="b"), answer())
    made = connections(read_timeout=30.0)
    made.exchange(REQUEST, BOUND)
    begun = made.begin(REQUEST, Bound(5.0, 1))
    assert (begun.status, begun.headers["a"], begun.body) == (299, "b", b"")
    assert wire.gettimeout() == 30.0
    assert begun.stream is not None
    assert begun.stream.url == URL
    assert begun.stream.read(99, begun.stream.instant_in(5.0)) == b"events"
    other = network.wire(answer(b"[2]"))
    assert made.exchange(REQUEST, BOUND).body == b"[2]"
    begun.stream.close()
    assert [one.is_open for one in (wire, other)] == [False, True]


def test_an_error_in_place_of_a_stream_ends_its_connection(network: Network) -> None:
    wire = network.wire(answer(b"no", "300 Multiple Choices"))
    refused = connections().begin(REQUEST, BOUND)
    assert (refused.status, refused.body, refused.stream) == (300, b"no", None)
    assert not wire.is_open


class Context:
    """A context of TLS that leaves a connection as it is, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.names: list[str] = []

    def wrap_socket(self, connection: socket.socket, server_hostname: str) -> socket.socket:
        self.names.append(server_hostname)
        if self.failure is not None:
            raise self.failure
        return connection


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (TimeoutError(), ConnectTimeoutError),
        (ConnectionRefusedError(), EndpointConnectionError),
        (UnicodeError(), EndpointConnectionError),
    ],
)
def test_an_endpoint_that_is_not_reached_is_named(
    network: Network, failure: Exception, raised: type[Exception]
) -> None:
    network.wires.append(failure)
    with pytest.raises(raised, match=URL) as told:
        connections().exchange(REQUEST, BOUND)
    assert type(told.value) is raised


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (TimeoutError(), ConnectTimeoutError),
        (ssl.SSLError("strange certificate"), SSLError),
        (ConnectionResetError("reset"), HTTPClientError),
    ],
)
def test_a_failed_handshake_leaves_no_connection(
    network: Network, failure: Exception, raised: type[Exception]
) -> None:
    wire = network.wire()
    context = Context(failure)
    with pytest.raises(raised, match=str(failure) or URL) as told:
        connections(context=context).exchange(REQUEST, BOUND)
    assert type(told.value) is raised
    assert not wire.is_open
    assert context.names == ["kinesis.test"], "the certificate has to be of the endpoint"


def test_an_error_of_tls_is_told_as_one(network: Network) -> None:
    network.wire([ssl.SSLError("bad record")])
    with pytest.raises(SSLError, match=URL):
        connections(context=Context()).exchange(REQUEST, BOUND)


@pytest.mark.parametrize(("patience", "wait"), [(3.0, 3.0), (10.0, 10.0), (60.0, 10.0)])
def test_who_waits_long_for_answers_does_not_for_a_connection(
    network: Network, patience: float, wait: float
) -> None:
    wire = network.wire(answer())
    probing: dict[str, Any] = {"keep_alive_probes": True} if patience > 3 else {}
    connections(read_timeout=patience, **probing).exchange(REQUEST, BOUND)
    assert [timeout for _, timeout in network.asked] == [wait]
    at_once = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    probes = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert wire.options == ([at_once, probes] if probing else [at_once])


def test_as_many_connections_are_kept_as_may_be_and_closed_with_their_owner(
    network: Network,
) -> None:
    """A call that is made while two others run opens a third one."""
    shared = [connections()]
    wires = [network.wire(answer(), answer()) for _ in range(3)]
    for wire in wires[:2]:
        wire.before_first = lambda: shared[0].exchange(REQUEST, BOUND)
    shared[0].exchange(REQUEST, BOUND)
    assert [wire.is_open for wire in wires] == [False, True, True]
    shared[0].exchange(REQUEST, BOUND)
    assert [len(wire.answers) for wire in wires] == [1, 0, 1], "the last one that was used"
    shared.clear()
    gc.collect()
    assert not any(wire.is_open for wire in wires)


def test_a_loop_tells_how_long_a_call_may_take_and_when_it_is_over(network: Network) -> None:
    sign = SignOfLife(lambda: 0.0)
    seen: list[float] = []

    def look() -> None:
        seen.append(sign.due)

    def run() -> None:
        connections().exchange(REQUEST, BOUND)
        look()

    network.before_each = look
    wire = network.wire(answer())
    wire.before_each = look
    sign.during(run)
    margin = 5.0
    assert seen == [CONNECTING + margin, *[BOUND.seconds + margin] * 2, PATIENCE]


def test_after_other_calls_a_loop_tells_again_how_long_an_answer_may_take(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sign = SignOfLife(lambda: 0.0)
    seen: list[float] = []
    wire = network.wire(answer(), answer())

    def run() -> None:
        made = connections()
        made.exchange(REQUEST, BOUND)
        sent = made.send_ahead(REQUEST, BOUND)
        assert sent is not None
        expect()  # another call has ended
        now[0] += 5.0
        wire.before_each = lambda: seen.append(sign.due)
        made.receive(sent)

    sign.during(run)
    assert seen == [BOUND.seconds - 5.0 + 5.0]


ALIKE = (
    *("options", "protocol", "minimum_version", "maximum_version", "verify_mode", "verify_flags"),
    *("post_handshake_auth", "keylog_filename", "hostname_checks_common_name", "security_level"),
)


@pytest.fixture
def no_contexts() -> Iterator[None]:
    connection._context.cache_clear()
    yield
    connection._context.cache_clear()


@pytest.mark.usefixtures("no_contexts")
@pytest.mark.parametrize("key_log", [None, "keys"])
@pytest.mark.parametrize("verifies", [True, False])
def test_a_context_is_that_of_botocore(
    verifies: bool, key_log: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)
    if key_log is not None:
        monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / key_log))
    own = tls_context(verifies or "", "https://test")
    botocores = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE)
    for name in ALIKE:
        assert getattr(own, name) == getattr(botocores, name), name
    assert own.get_ciphers() == botocores.get_ciphers()
    assert own.check_hostname is verifies
    assert bool(own.get_ca_certs()) is verifies


def test_the_certificates_are_those_of_botocore() -> None:
    assert own_certificates() == get_cert_path(verify=True)


def test_without_certifi_they_are_in_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "certifi", None)
    assert Path(own_certificates()).is_file()
    assert Path(own_certificates()).parent.name == "botocore"


def test_clients_share_a_context_and_its_certificates() -> None:
    assert tls_context(True, "https://one.test") is tls_context(True, "https://other.test")


def test_a_bundle_that_has_changed_is_read_again(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(own_certificates()).read_bytes())
    os.utime(bundle, ns=(1, 1))
    first = tls_context(str(bundle), "https://test")
    assert tls_context(str(bundle), "https://test") is first
    os.utime(bundle, ns=(2, 2))
    assert tls_context(str(bundle), "https://test") is not first


def test_a_bundle_that_is_not_there_is_an_error_of_the_endpoint(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(SSLError, match="https://test"):
            tls_context(str(tmp_path / "gone.pem"), "https://test")


@pytest.mark.parametrize(
    ("configured", "requests", "expected"),
    [("a", "b", "a"), (None, "b", "b"), (None, None, True), ("", "b", "")],
)
def test_the_bundle_of_the_settings_goes_first(
    configured: str | None,
    requests: str | None,
    expected: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    if requests is not None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", requests)
    session = Mock(**{"get_config_variable.return_value": configured})
    assert trusted(session) == expected
