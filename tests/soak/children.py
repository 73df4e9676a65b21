"""The processes of a soak, each the first of a session, which all that it starts belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.soak.footprint import processes
from tests.soak.setting import ROOT

_END_SECONDS = 90.0


class Child:
    """``python -m tests.soak.MODULE ARGUMENTS``. What it prints goes to a log, or to a pipe."""

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        log: Path,
        environment: Mapping[str, str],
        is_piped: bool = False,
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"tests.soak.{module}", *arguments],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_piped else output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.killed = False

    def first_line(self) -> str:
        """Returns the first line of its output. Raises RuntimeError if it ended without output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError(f"{self.name} did not start:\n{self.last_words()}")
        return line

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the child runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """``kill -9`` of the whole session, at once."""
        self.killed = True
        # A process may start another while it dies.
        while alive := [found.pid for found in processes({self.pid})]:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            time.sleep(0.01)
        self._close()

    def terminate(self, seconds: float = _END_SECONDS) -> str | None:
        """SIGTERM, and wait for the end; what was not well about it, if anything."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not end within {seconds:g} s of SIGTERM"
        self._close()
        return f"{self.name} ended with {code}:\n{self.last_words()}" if code else None

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait()
