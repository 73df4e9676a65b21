"""DynamoDB and STS: moto's server, in a child process that never outlives this process.

`main` runs in the child: it prints its port and serves one request at a time, because moto's
conditional writes are atomic only then. The child exits when its standard input ends, which happens
even if the parent is killed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sparkinesis.errors import SparkinesisError

if TYPE_CHECKING:
    import urllib3

    from sparkinesis.local.wire.http import Answer

_SKIPPED = {b"connection", b"transfer-encoding", b"content-length", b"date", b"server"}


class MotoError(SparkinesisError):
    """moto's server did not start."""


class Moto:
    """The child process and the connection pool to it. The child starts on the first request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Calls wait here for their turn, not for the pool's only connection: closing the pool would
        # not wake them.
        self._turn = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The child's process id; None if it is not running."""
        return self._child.pid if self._child is not None else None

    def start(self) -> urllib3.HTTPConnectionPool:
        """Start the child if it is not running, and return the pool. Raises: MotoError."""
        with self._lock:
            if self._stopped:
                raise MotoError("the local server is stopping")
            if self._pool is None:
                port = self._spawn()
                import urllib3  # noqa: PLC0415

                self._pool = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=1)
            return self._pool

    def _spawn(self) -> int:
        if importlib.util.find_spec("moto") is None:
            raise MotoError(
                "moto, which serves DynamoDB, is not installed: pip install 'sparkinesis[local]'"
            )
        self._child = child = subprocess.Popen(
            [sys.executable, "-c", "from sparkinesis.local.wire.dynamodb import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        line = child.stdout.readline().strip()
        if not line.isdigit():
            self._end_child()
            raise MotoError("moto did not start; see its message on standard error")
        return int(line)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._end_child()
            if self._pool is not None:
                self._pool.close()

    def _end_child(self) -> None:
        child = self._child
        if child is None:
            return
        self._child = None
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()

    async def forward(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> Answer:
        return await asyncio.to_thread(self._forward, method, path, list(headers), body)

    def _forward(
        self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Answer:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        from sparkinesis.local.wire.http import Answer  # noqa: PLC0415

        passed_on = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name not in _SKIPPED
        }
        try:
            with self._turn:
                response = self.start().urlopen(
                    method,
                    path,
                    body=body,
                    headers=passed_on,
                    redirect=False,
                    retries=False,
                    decode_content=False,
                )
        except MotoError as error:
            # 501, because clients retry after 500, 502, 503 and 504.
            return Answer(501, [(b"content-type", b"text/plain")], f"{error}\n".encode())
        except HTTPError as error:
            return Answer(503, [(b"content-type", b"text/plain")], f"{error}\n".encode())
        answered = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.headers.items()
        ]
        return Answer(
            response.status, [pair for pair in answered if pair[0] not in _SKIPPED], response.data
        )


def _exit_with_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def stop_recording_models() -> None:
    """Stop moto, in this process, from keeping a list of all models that it ever made.

    moto lists them for a web page: a copy of each row of each Scan, for as long as it runs.
    """
    from moto.core.common_models import BaseModel  # noqa: PLC0415

    BaseModel.__new__ = staticmethod(lambda cls, *_, **__: object.__new__(cls))


def main() -> None:
    """Run moto's server in the child process; the first line of its output is its port."""
    # Ctrl-C in a terminal reaches the child too; the parent stops the child.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    import logging  # noqa: PLC0415

    from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
    from werkzeug.serving import make_server  # noqa: PLC0415

    from sparkinesis.local.wire import partiql  # noqa: PLC0415

    stop_recording_models()
    partiql.install()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app: Any = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=False)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
