"""The processes of a scenario: started, killed and ended; their lines in a folder of logs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from tests.interop.judge import Verdict
from tests.spark.query_process import group_process, kill

PATIENCE = 240.0
_SETTLED = 3.0
"""Seconds without a new record after which no repeat is to come any more."""


class ScenarioError(Exception):
    """A scenario could not be played: what happened, and where the logs are."""


@dataclass(kw_only=True)
class Processes:
    """Named processes that write lines of JSON into ``NAME.jsonl``, and logs into ``NAME.log``."""

    folder: Path
    killed: set[str] = field(default_factory=set)
    processes: dict[str, Popen[bytes]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def start_process(self, name: str, command: Sequence[str]) -> None:
        log = self.folder / f"{name}.log"
        self.processes[name] = self._stack.enter_context(group_process(list(command), log))

    def kill(self, name: str) -> None:
        self.killed.add(name)
        kill(self.processes[name])

    def end(self, name: str) -> None:
        """Gracefully."""
        self.processes[name].send_signal(signal.SIGTERM)
        self.processes[name].wait(60)

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            for name, process in self.processes.items():
                if process.poll() not in {None, 0} and name not in self.killed:
                    raise ScenarioError(f"{name} has ended by itself; see {self.folder}")
            if time.monotonic() > deadline:
                raise ScenarioError(f"{what} has not come; see {self.folder}")
            time.sleep(0.2)

    def lines(self) -> list[dict[str, Any]]:
        """The lines that workers have written so far; a last one may be half written."""
        return [
            json.loads(line)
            for path in self.folder.glob("*.jsonl")
            for line in path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        ]

    def has_more_than_checkpointed(self, reader: str) -> bool:
        """True if the last line of a worker is one of records."""
        mine = [line for line in self.lines() if line["reader"] == reader]
        return bool(mine) and "records" in mine[-1]

    def readers(self) -> set[str]:
        return {line["reader"] for line in self.lines() if "records" in line}

    def close(self) -> None:
        self._stack.close()


def settled(verdict: Callable[[], Verdict]) -> Verdict:
    """Return the verdict once nothing is lost and nothing comes any more, or patience has ended."""
    last, since = verdict(), time.monotonic()
    deadline = since + PATIENCE
    while time.monotonic() < deadline and (last.lost or time.monotonic() - since < _SETTLED):
        time.sleep(0.3)
        now = verdict()
        if now != last:
            last, since = now, time.monotonic()
    return last
