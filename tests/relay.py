"""A relay in front of a server, which counts connections, and stays silent, drips, or hangs up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Mood = Literal["well", "silent", "drips", "hangs up"]


@dataclass
class Relay:
    endpoint: str
    opened: int = 0
    """Connections that clients have opened."""
    mood: Mood = "well"
    """What becomes of answers: ``silent``: they never come. ``drips``: the first one comes byte by
    byte and never ends, each byte before a client's timeout. ``hangs up``: the connection ends."""
    asked: int = 0
    """Parts of requests that came while it was not well."""
    over: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def relaying(endpoint: str) -> Iterator[Relay]:
    """Pass bytes between clients and the server at ``endpoint`` during the block."""
    address = urlsplit(endpoint)
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relay = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}")

        def accept() -> None:
            with contextlib.suppress(OSError):  # the listening socket is shut down at the end
                while True:
                    client, _ = listening.accept()
                    relay.opened += 1
                    server = socket.create_connection((address.hostname, address.port or 80))
                    ends.extend((client, server))
                    for run in (_ask, _answer):
                        threading.Thread(
                            target=run, args=(relay, client, server), daemon=True
                        ).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield relay
        finally:
            relay.over.set()
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for end in ends:
                end.close()


def _ask(relay: Relay, client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(65536):
            if relay.mood != "well":
                relay.asked += 1
            if relay.mood == "hangs up":
                break
            server.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
        server.shutdown(socket.SHUT_RDWR)


def _answer(relay: Relay, client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(65536):
            if relay.mood == "well":
                client.sendall(data)
            elif relay.mood == "drips":
                client.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not relay.over.wait(0.5):
                    client.sendall(b"-")
        client.shutdown(socket.SHUT_WR)
