"""A body that comes over a connection of its own: what a read gives, waits for and refuses."""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sparkinesis.stream.calls.answers.guards import AnswerTooLongError
from sparkinesis.stream.calls.direct.http_answer import StreamedBody, has_data, is_readable

LONG = math.inf
CHUNKED = {"transfer-encoding": "chunked"}
FIVE = {"content-length": "5"}


class Connection(socket.socket):
    """Our end of a connection, which tells how much it was asked for, and how patiently."""

    def __init__(self) -> None:
        ours, self.server = socket.socketpair()
        super().__init__(ours.family, ours.type, ours.proto, ours.detach())
        self.settimeout(20.0)
        self.waits: list[float | None] = []
        self.read_ahead = 0
        """The bytes that were read into a buffer of the body's own."""

    def recv(self, most: int, /, *more: Any) -> bytes:
        self.waits.append(self.gettimeout())
        data = super().recv(most, *more)
        self.read_ahead += len(data)
        return data

    def recv_into(self, buffer: Any, /, *more: Any) -> int:
        self.waits.append(self.gettimeout())
        return super().recv_into(buffer, *more)


@contextmanager
def body(
    headers: Mapping[str, str], *sent: bytes, start: bytes = b"", is_over: bool = False
) -> Iterator[tuple[StreamedBody, Connection]]:
    """A body of which these bytes have arrived. is_over: the server has closed the connection."""
    connection = Connection()
    with connection, connection.server as server:
        for data in sent:
            server.sendall(data)
        if is_over:
            server.shutdown(socket.SHUT_WR)
        yield StreamedBody("http://test", connection, start, headers), connection


@pytest.mark.parametrize("start", range(8))
def test_a_body_of_a_length_ends_with_it(start: int) -> None:
    sent = b"hello" + b"HT"
    with body(FIVE, sent[start:], start=sent[:start]) as (read, connection):
        assert [bytes(read.read(3, LONG)) for _ in range(3)] == [b"hel", b"lo", b""]
        assert read.let_go() is (start == 5), "bytes behind it are no other answer"
        connection.server.close()


def test_a_body_of_no_length_ends_with_the_connection() -> None:
    with body({}, b"lo", start=b"hel", is_over=True) as (read, _):
        assert [bytes(read.read(4, LONG)) for _ in range(3)] == [b"hell", b"o", b""]
        assert not read.let_go()


def test_a_connection_may_have_no_timeout() -> None:
    connection = Connection()
    with connection, connection.server as server:
        connection.settimeout(None)
        server.sendall(b"hello")
        read = StreamedBody("http://test", connection, b"", FIVE)
        assert read.url == "http://test"
        assert read.read(5, LONG) == b"hello"
        assert connection.waits == [None]


def test_an_empty_body_waits_for_nothing() -> None:
    with body({"content-length": "0"}) as (read, _):
        assert read.read(9, LONG) == b""
        assert read.let_go()


@pytest.mark.parametrize("codings", ["chunked", "Chunked", "gzip, chunked", "gzip,chunked"])
def test_chunks_end_with_an_empty_one(codings: str) -> None:
    sent = b"5\r\nhello\r\nA;x=1\r\n0123456789\r\n00\r\nTrailer: 1\r\nOther: 2\r\n\r\n"
    for cut in range(len(sent) + 1):
        headers = {"transfer-encoding": codings}
        with body(headers, sent[cut:], start=sent[:cut]) as (read, _):
            found = [bytes(read.read(6, LONG)) for _ in range(4)]
            assert found == [b"hello0", b"123456", b"789", b""]
            assert read.let_go()


def test_chunks_are_not_the_last_coding_of_all_bodies() -> None:
    with body({"transfer-encoding": "chunked, gzip"}, b"2\r\nab", is_over=True) as (read, _):
        assert read.read(9, LONG) == b"2\r\nab"


def test_bytes_behind_the_last_chunk_are_no_other_answer() -> None:
    with body(CHUNKED, b"1\r\nx\r\n0\r\n\r\nH") as (read, _):
        assert read.read(9, LONG) == b"x"
        assert not read.let_go()


def test_a_body_that_was_not_read_to_its_end_lets_no_connection_go() -> None:
    for headers in (FIVE, CHUNKED):
        with body(headers, start=b"5\r\nhe"[-2 if headers is FIVE else 0 :]) as (read, _):
            assert read.read(2, LONG) == b"he"
            assert not read.let_go()


@pytest.mark.parametrize(
    ("headers", "sent", "error"),
    [
        (FIVE, b"hell", EOFError),
        (CHUNKED, b"5\r\nhell", EOFError),
        (CHUNKED, b"5\r\nhello", EOFError),
        (CHUNKED, b"5\r\nhello\r\n0\r\n", EOFError),
        (CHUNKED, b"5\r\nhello\r", EOFError),
        (CHUNKED, b"5\r\nhelloX\r\n", ValueError),
        (CHUNKED, b"5\r\nhelloXX\r\n", ValueError),
        (CHUNKED, b"\r\n", ValueError),
        (CHUNKED, b";\r\n", ValueError),
        (CHUNKED, b"g\r\n", ValueError),
        (CHUNKED, b"-5\r\nhello\r\n", ValueError),
        (CHUNKED, b"1_0\r\n", ValueError),
        (CHUNKED, b"0\r\n" + b"a: b\r\n" * 100 + b"\r\n", ValueError),
        (CHUNKED, b"0" * 4097, ValueError),
    ],
)
def test_a_body_that_is_cut_or_no_http_is_an_error(
    headers: Mapping[str, str], sent: bytes, error: type[Exception]
) -> None:
    with body(headers, sent, is_over=True) as (read, _), pytest.raises(error):
        read.read(99, LONG)


def test_lines_and_trailers_may_be_long() -> None:
    sent = b"0" * 4096 + b"\r\n" + b"a: b\r\n" * 99 + b"\r\n"
    with body(CHUNKED, sent[:4096]) as (read, connection):
        assert not read.has_data
        connection.server.sendall(sent[4096:])
        assert read.read(9, LONG) == b""
        assert read.let_go()


@pytest.mark.parametrize(("most", "fits"), [(5, True), (4, False)])
def test_a_whole_body_has_a_bound(most: int, fits: bool) -> None:
    with body(FIVE, b"hello") as (read, _):
        if fits:
            assert read.whole(most, LONG) == b"hello"
            return
        with pytest.raises(AnswerTooLongError, match="5 or more bytes, and may have 4"):
            read.whole(most, LONG)


def test_a_whole_body_is_one_however_long() -> None:
    data = bytes(range(256)) * 300
    with body({"content-length": str(len(data))}, data) as (read, _):
        assert read.whole(len(data), LONG) == data


def test_a_long_event_is_received_into_its_place() -> None:
    data = bytes(range(256)) * 300
    with body({"content-length": str(len(data))}, data) as (read, connection):
        assert read.read(len(data) - 9, LONG) == data[:-9]
        assert connection.read_ahead == 0
        assert read.read(99, LONG) == data[-9:]
        assert connection.read_ahead == 9
    for size, read_ahead in ((16_384, 0), (16_383, 16_383)):
        with body({"content-length": str(size)}, data[:size]) as (read, connection):
            assert read.read(size, LONG) == data[:size]
            assert connection.read_ahead == read_ahead, "the next one comes along with a short one"


def test_what_has_arrived_is_seen_in_the_buffer_too() -> None:
    with body({}, b"ab") as (read, connection):

        def seen() -> tuple[bool, bool, bool]:
            return read.has_data, read.await_data(0), is_readable(connection)

        assert seen() == (False, True, True)
        assert read.read(1, LONG) == b"a"
        assert seen() == (True, True, False)
        assert read.read(1, LONG) == b"b"
        assert seen() == (False, False, False)


def test_the_line_end_behind_a_chunk_is_read_with_it() -> None:
    """Else it would look like the next event."""
    with body(CHUNKED, b"1\r\na") as (read, connection):
        assert read.read(1, LONG) == b"a"
        connection.server.sendall(b"\r\n1\r\nb\r\n")
        assert read.read(1, LONG) == b"b"
        assert not read.has_data
        assert not is_readable(connection)


def test_each_wait_ends_with_the_event_or_with_the_patience_for_a_read() -> None:
    data = b"x" * 40_000
    for seconds, longest in ((5.0, 5.0), (100.0, 20.0)):
        with body(CHUNKED, b"9c40\r\n" + data[:20_000]) as (read, connection):
            connection.server.sendall(data[20_000:])
            assert read.read(len(data), read.instant_in(seconds)) == data
            assert len(connection.waits) >= 2
            assert all(wait and longest - 1 < wait <= longest for wait in connection.waits)
    with body({}) as (read, _), pytest.raises(TimeoutError):
        read.read(1, read.instant_in(0.0))


def test_a_body_owns_its_connection_until_it_lets_go() -> None:
    with body(FIVE) as (read, connection):
        assert read.fileno() == connection.fileno()
        del read
        assert connection.fileno() == -1
    with body(FIVE) as (read, connection):
        read.let_go()
        del read
        assert connection.fileno() >= 0
    with body(FIVE, start=b"hello") as (read, connection):
        had_data = read.has_data
        read.close()
        assert (had_data, read.has_data) == (True, False)
        assert read.fileno() == connection.fileno() == -1


def test_a_shutdown_ends_the_connection_and_keeps_the_descriptor() -> None:
    with body({}) as (read, connection):
        read.shutdown()
        assert read.read(1, LONG) == b""
        assert connection.server.recv(1) == b""
        assert read.fileno() >= 0
        connection.close()
        read.shutdown()


class Decrypted(Connection):
    """A connection of TLS that has decrypted so many bytes, or fails to say."""

    def __init__(self, found: int | Exception) -> None:
        super().__init__()
        self.found = found

    def pending(self) -> int:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize(
    ("found", "expected"),
    [(1, True), (0, False), (ValueError("closed"), False), (OSError("closed"), False)],
)
def test_bytes_that_tls_has_decrypted_have_arrived(
    found: int | Exception, *, expected: bool
) -> None:
    connection = Decrypted(found)
    with connection, connection.server:
        assert has_data(connection) is expected
        read = StreamedBody("http://test", connection, b"", {})
        assert read.has_data is expected
        assert read.await_data(0) is expected


@pytest.mark.parametrize("has_poll", [True, False])
def test_a_socket_is_readable_if_a_read_would_not_wait(
    monkeypatch: pytest.MonkeyPatch, *, has_poll: bool
) -> None:
    """Windows has no poll."""
    if not has_poll:
        monkeypatch.delattr(select, "poll")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_readable(ours)
        assert not is_readable(ours.fileno(), milliseconds=1)
        theirs.send(b"x")
        assert is_readable(ours)
        ours.recv(1)
        theirs.close()
        assert is_readable(ours)
    assert is_readable(ours), "it is closed"
    assert is_readable(-1)
