"""`Program`: a program with its worker processes, which a test starts, kills and looks at."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import pace

MODULE = "tests.integration.worker.processes_program"


@dataclass
class Program:
    """A program with its worker processes, all in one session of the system.

    more: arguments of the program behind those of each: the endpoint, the stream or queue, and the
    file that it writes into.
    """

    endpoint: str
    stream: str
    folder: Path
    more: tuple[str, ...] = ()
    module: str = MODULE
    supervisor: subprocess.Popen[bytes] | None = None
    sessions: list[int] = field(default_factory=list)

    def start(self, **given: Any) -> None:
        named = [f"{name}={json.dumps(value)}" for name, value in given.items()]
        command = [sys.executable, "-m", self.module, self.endpoint, self.stream]
        command += [str(self.folder / "events"), *self.more, *named]
        with (self.folder / "err").open("ab") as errors:
            self.supervisor = subprocess.Popen(
                command, stderr=errors, stdout=subprocess.DEVNULL, start_new_session=True
            )
        self.sessions.append(self.pid)

    @property
    def pid(self) -> int:
        assert self.supervisor is not None
        return self.supervisor.pid

    def wait(self) -> int:
        assert self.supervisor is not None
        return self.supervisor.wait(pace.seconds(60))

    def workers(self) -> list[int]:
        """The pids of the worker processes of the present supervisor."""
        return [pid for pid in members(self.pid) if b"--multiprocessing-fork" in command(pid)]

    def left(self) -> list[int]:
        """The pids of all processes that were ever started here, and live."""
        return [pid for session in self.sessions for pid in members(session)]

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        return sorted(map(json.loads, lines), key=lambda event: float(event["at"]))

    def processed(self) -> set[bytes]:
        return {data.encode() for event in self.events() for data in event.get("data", ())}

    def by_process(self, kind: str) -> dict[int, set[str]]:
        """The shards of which processes have written down such an event, by pid."""
        found: dict[int, set[str]] = {}
        for event in self.events():
            if event["event"] == kind:
                found.setdefault(int(event["worker"]), set()).add(event["shard"])
        return found

    def said(self) -> str:
        return (self.folder / "err").read_text()


def members(session: int) -> list[int]:
    """The pids of the processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, *rest = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest[2]) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
