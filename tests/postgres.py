"""A Postgres of Debian's package, as an unprivileged user, on a Unix socket."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.needed import missing, need
from tests.pace import eventually

USER = "postgres"
"""Who runs the server if the tests are run by root, whom Postgres refuses."""


def binaries() -> Path | None:
    """The folder of the newest server's programs, which Debian keeps out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    beside = shutil.which("postgres")
    return found[-1].parent if found else Path(beside).parent if beside else None


def running_postgres() -> Postgres:
    """Return a server, for a ``with`` block; without Postgres or psycopg the test is skipped."""
    need("psycopg")
    if binaries() is None:
        missing("Debian's package postgresql is not installed")
    return Postgres()


class Postgres:
    """A server with an empty database."""

    def __init__(self) -> None:
        where = binaries()
        assert where is not None
        self._user = USER if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path is short
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        data = self.folder / "data"
        subprocess.run(
            [where / "initdb", "-D", data, "-U", "flights", "-A", "trust", "--no-sync"],
            user=self._user,
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with (self.folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                [where / "postgres", "-D", data, "-k", self.folder, "-c", "listen_addresses="],
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
            )
        self.environment = {
            "PGHOST": str(self.folder),
            "PGUSER": "flights",
            "PGDATABASE": "postgres",
        }

    def connect(self) -> Any:
        """A connection of psycopg in which each statement is its own transaction."""
        import psycopg  # noqa: PLC0415 - of `make test-lakes`

        return psycopg.connect(
            host=str(self.folder), user="flights", dbname="postgres", autocommit=True
        )

    def new_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"d{uuid.uuid4().hex[:8]}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://flights@/{name}?host={self.folder}"

    def __enter__(self) -> Postgres:
        eventually(self._answers)
        return self

    def _answers(self) -> bool:
        import psycopg  # noqa: PLC0415 - of `make test-lakes`

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.send_signal(signal.SIGQUIT)  # at once
        self._server.wait()
        shutil.rmtree(self.folder)
