"""A server that reads requests from a socket, and writes back whatever bytes a test gives it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Behaviour = Callable[[socket.socket], bool]
"""Answers a request on its connection; returns True if the connection stays open."""


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes
    connection: int
    """The number of the connection that it came over."""


@dataclass
class RawServer:
    endpoint: str
    behaviours: deque[Behaviour] = field(default_factory=deque)
    """One for each request, in turn."""
    requests: list[Request] = field(default_factory=list)
    resets_next: bool = False
    """True resets the next connection before its request is read."""


def http(
    body: bytes = b"{}",
    status: str = "200 OK",
    *,
    chunked: bool = False,
    length: int | None = None,
    stays: bool = True,
    version: str = "1.1",
    **headers: str,
) -> Behaviour:
    """Answer with these bytes. length: a Content-Length that is not the body's."""
    lines = [f"HTTP/{version} {status}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        parts = [body[at : at + 7] for at in range(0, len(body), 7)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(body) if length is None else length}")

    def answer(connection: socket.socket) -> bool:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return stays

    return answer


def reset(sends: bytes = b"") -> Behaviour:
    """Reset the connection, in place of an answer or after its first bytes."""

    def answer(connection: socket.socket) -> bool:
        connection.sendall(sends)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    return answer


def close(sends: bytes = b"") -> Behaviour:
    """Close the connection, in place of an answer or after its first bytes."""

    def answer(connection: socket.socket) -> bool:
        connection.sendall(sends)
        return False

    return answer


def silence(sends: bytes = b"") -> Behaviour:
    """Send nothing more until the client leaves."""

    def answer(connection: socket.socket) -> bool:
        connection.sendall(sends)
        with suppress(OSError):
            connection.recv(1)
        return False

    return answer


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    scheme = "http" if tls is None else "https"
    server = RawServer(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")

    def accept() -> None:
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            number += 1
            threading.Thread(target=serve, args=(connection, number), daemon=True).start()

    def serve(connection: socket.socket, number: int) -> None:
        with suppress(OSError), connection:
            if server.resets_next:
                server.resets_next = False
                reset()(connection)
                return
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            with connection:
                read_requests(connection, number)

    def read_requests(connection: socket.socket, number: int) -> None:
        with connection.makefile("rb") as reader:
            while line := reader.readline():
                assert line.startswith(b"POST "), line
                headers = {}
                while (line := reader.readline()) != b"\r\n":
                    name, _, value = line.decode().strip().partition(": ")
                    headers[name.lower()] = value
                body = reader.read(int(headers["content-length"]))
                server.requests.append(Request(headers, body, number))
                if not server.behaviours.popleft()(connection):
                    return

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
