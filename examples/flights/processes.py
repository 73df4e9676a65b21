"""The child processes of the demo: the local Kinesis, and the query that is killed."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

STREAM = "flights"
REGION = "eu-west-1"
SHARDS = 4
ROOT = Path(__file__).parents[2]
SERVER_START_SECONDS = 30
FOR_A_SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of a JVM that lives for a minute: late optimisations would only slow it down."""


class Child:
    """A Python module that runs in its own process group, with its stderr in a log file."""

    def __init__(
        self, module: str, *arguments: str, folder: Path, stdout: int | IO[bytes] | None = None
    ) -> None:
        self.log = folder / f"{module}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=stdout or log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """Send ``kill -9`` to the whole group, Python and the JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def last_words(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def start_server(folder: Path) -> Child:
    """Start a local Kinesis on a free port, with the service's limits."""
    streams = f"{STREAM}:{SHARDS}"
    arguments = ["--port", "0", "--streams", streams, "--region", REGION, "--json"]
    # The demo reshards at points of its story, and does not wait for the stream to be ACTIVE.
    arguments += ["--stream-delay-ms", "0"]
    return Child("sparkinesis.local", *arguments, folder=folder, stdout=subprocess.PIPE)


def endpoint_of(server: Child) -> str:
    """Wait for the server's endpoint. Raises RuntimeError if the server does not start."""
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        line = server.stdout.readline() if selector.select(SERVER_START_SECONDS) else b""
    if not line:
        raise RuntimeError(f"the local Kinesis did not start:\n{server.last_words()}")
    return str(json.loads(line)["endpoint"])


def start_query(endpoint: str, silence: str, folder: Path) -> Child:
    places = ["--endpoint", endpoint, "--stream", STREAM, "--region", REGION]
    return Child(
        "examples.flights.query",
        *places,
        "--folder",
        str(folder),
        "--silence",
        silence,
        folder=folder,
    )


def _environment(folder: Path) -> dict[str, str]:
    """The environment: credentials for a local Kinesis, and folders for temporary files."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={scratch} {FOR_A_SHORT_LIFE}",
    }
