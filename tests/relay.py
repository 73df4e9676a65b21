"""A relay in front of a server, which counts the connections that clients open."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Relay:
    endpoint: str
    opened: int = 0


@contextlib.contextmanager
def relay(endpoint: str) -> Iterator[Relay]:
    """Pass bytes between clients and the server at ``endpoint`` during the block."""
    address = urlsplit(endpoint)
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relayed = Relay(f"http://127.0.0.1:{listening.getsockname()[1]}")

        def accept() -> None:
            with contextlib.suppress(OSError):  # the listening socket is shut down at the end
                while True:
                    client, _ = listening.accept()
                    relayed.opened += 1
                    server = socket.create_connection((address.hostname, address.port or 80))
                    ends.extend((client, server))
                    for ends_of_one in ((client, server), (server, client)):
                        threading.Thread(target=_pump, args=ends_of_one, daemon=True).start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield relayed
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for end in ends:
                end.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
