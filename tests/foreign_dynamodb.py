"""A DynamoDB that is not ours, for tests: a plain moto server, and one behind it that can do less.

`Lacking` stands for servers that speak only a part of the API, or an older one, as dynalite does.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import urllib3
from moto.server import ThreadedMotoServer

from tests.answering import answering

_KEPT = {"content-type", "x-amz-target", "authorization", "x-amz-date", "host"}


@contextmanager
def plain_moto() -> Iterator[str]:
    """The URL of a moto server as ``moto_server`` starts it, without what our own one mends."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


class Lacking:
    """A proxy of a server. Calls are answered one at a time, as moto is atomic only then."""

    def __init__(self, behind: str) -> None:
        self.errors: dict[str, tuple[int, str]] = {}
        """The status and the error code of all answers to an operation, by operation."""
        self.before: dict[str, Callable[[], object]] = {}
        """A function to call before the next answer to an operation, by operation."""
        self.tells_rows = True
        """True if refusals contain the refusing row on request."""
        self.calls: Counter[str] = Counter()
        """The number of calls by operation."""
        self._behind = behind
        self._pool = urllib3.PoolManager()
        self._turn = threading.Lock()

    def lack_nothing(self) -> None:
        """Begin anew, as a server that can do everything."""
        self.errors, self.before, self.tells_rows, self.calls = {}, {}, True, Counter()

    def _answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        operation = headers.get("x-amz-target", "").rpartition(".")[2]
        self.before.pop(operation, lambda: None)()
        with self._turn:
            self.calls[operation] += 1
            if operation in self.errors:
                status, code = self.errors[operation]
                return status, json.dumps({"__type": f"com.amazonaws#{code}"}).encode()
            kept = {name: value for name, value in headers.items() if name in _KEPT}
            response = self._pool.request("POST", self._behind, body=body, headers=kept)
        if response.status == 400 and not self.tells_rows:
            told = json.loads(response.data)
            told.pop("Item", None)
            return 400, json.dumps(told).encode()
        return response.status, response.data

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its URL."""
        with self._pool, answering(self._answer, "application/x-amz-json-1.0") as url:
            yield url
