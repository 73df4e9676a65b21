"""Reads the memory, threads, sockets and file descriptors of processes from /proc."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

_PROC = Path("/proc")
_POOLS = "block-manager-"
"""Threads of Spark's: a few hundred whenever it drops broadcasts, gone after a minute."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources of one process. memory: resident, MiB. threads: without those of `_POOLS`."""

    memory: float
    threads: int
    sockets: int
    files: int
    """All its file descriptors, sockets included."""


@dataclass(frozen=True, slots=True)
class Found:
    """A process: its session is the process id of whoever was started at first."""

    pid: int
    session: int
    role: str
    footprint: Footprint


def largest(each: Sequence[Footprint]) -> Footprint:
    """The most of each of one or more."""
    return Footprint(*map(max, zip(*map(astuple, each), strict=True)))


def is_known_here() -> bool:
    """True if this system has /proc."""
    return sys.platform == "linux"


def processes(sessions: set[int]) -> list[Found]:
    """The processes of these sessions that run now."""
    found = []
    for folder in _folders():
        # It may end at any moment.
        with suppress(OSError):
            session = _session(folder)
            if session in sessions:
                footprint = footprint_of(folder)
                found.append(Found(int(folder.name), session, _role(folder), footprint))
    return found


def footprint_of(folder: Path) -> Footprint:
    """Reads the process of a folder like ``/proc/self``. Raises OSError if it has ended."""
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    files = [_target(link) for link in (folder / "fd").iterdir()]
    return Footprint(
        memory=int(status.get("VmRSS", "0 kB").split()[0]) / 1024,
        threads=sum(not _name(task).startswith(_POOLS) for task in (folder / "task").iterdir()),
        sockets=sum(target.startswith("socket:") for target in files),
        files=len(files),
    )


def marked(variable: str, value: str) -> dict[int, str]:
    """Command lines, by process id, of processes with this in the environment they began with."""
    wanted = f"{variable}={value}".encode()
    found = {}
    for folder in _folders():
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = _command(folder)
    return found


def _folders() -> Iterator[Path]:
    return _PROC.glob("[0-9]*")


def _session(folder: Path) -> int:
    """Zombies belong to none: they are gone but for being waited for."""
    # The name in brackets may hold spaces and brackets.
    state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
    return -1 if state == "Z" else int(session)


def _command(folder: Path) -> str:
    return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _role(folder: Path) -> str:
    """The role of a process of a Spark driver or of the local server."""
    command = _command(folder)
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return "JVM"
    if "pyspark.daemon" in command:
        return "Python workers"
    if "pyspark.sql" in command:
        return "planner"
    return "DynamoDB" if "sparkinesis.local.wire.dynamodb" in command else "Python"


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:  # ended meanwhile
        return _POOLS


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile
        return ""
