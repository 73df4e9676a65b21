"""The leader's lock between a worker of this library and the lock client of a Java KCL.

Each takes over from the other: after a crash once the lock has expired, after a release at once. A
lock that its owner renews is taken by nobody, and a leader that has lost it notices.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.coordinator_state import (
    HeldLock,
    SeenLock,
    can_acquire,
    encode_lock,
    new_lock,
    observe,
)
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from tests.interop.kcl.java import command
from tests.interop.processes import ScenarioError
from tests.kcl import create_table

_JAVAS = 3.0
"""Seconds of the locks of Java."""
_OURS = 2.0
_LATE = 1.5
"""Seconds after which a takeover is late, on a machine that does other things."""
_TABLE = "lock"


class JavaLock:
    """A process with Java's lock client."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class OurLock:
    """This library's side."""

    def __init__(self, table: LeaseTable) -> None:
        self.coordination = Coordination.find(table, may_share_table=True)
        self._seen: SeenLock | None = None
        self.held: HeldLock | None = None

    def sees_it_free(self) -> bool:
        lock = self.coordination.lock()
        self._seen = observe(self._seen, lock, time.monotonic())
        return can_acquire(self._seen, time.monotonic())

    def lead(self) -> bool:
        """Become the leader if the lock is free."""
        if not self.sees_it_free():
            return False
        known = None if self._seen is None else self._seen.lock
        mine = new_lock("ours", _OURS, str(uuid.uuid4()))
        self.held = self.coordination.acquire(known, mine, time.monotonic())
        return self.held is not None

    def beat(self) -> bool:
        assert self.held is not None
        now = time.monotonic()
        held = self.coordination.heartbeat(self.held.with_heartbeat(str(uuid.uuid4())), now)
        self.held = held or self.held
        return held is not None

    def release(self) -> None:
        assert self.held is not None
        self.coordination.release(self.held)


def play(folder: Path) -> list[str]:
    """Play all steps; return what went wrong. Raises `ScenarioError` if a step cannot be played."""
    problems: list[str] = []

    def expect(what: str, holds: object) -> None:
        print(f"  {'yes' if holds else 'NO '}  {what}", flush=True)
        if not holds:
            problems.append(f"not so: {what}")

    with LocalServer(dynamodb=True) as server, _java(folder, server, "java-1") as first:
        dynamodb = server.client("dynamodb")
        create_table(dynamodb, _TABLE)
        ours = OurLock(LeaseTable(_TABLE, "us-east-1", server.endpoint_url))
        expect("Java leads where nobody does", first.ask("lead") == "yes")
        lock = ours.coordination.lock()
        assert lock is not None
        row = _row(dynamodb)
        expect("its row is as we write it", row == {"leaseKey": _KEY, **encode_lock(lock)})
        expect(
            "while it lives, we never see its lock free",
            not any(_each(2 * _JAVAS, ours.sees_it_free)),
        )
        first.kill()
        began, waited = time.monotonic(), _until(ours.lead)
        # Its last heartbeat may be a quarter of the duration old.
        expect(
            f"after its crash we lead after about {_JAVAS} s ({waited:.1f})",
            0.7 * _JAVAS < waited < _JAVAS + _LATE and time.monotonic() > began,
        )
        with _java(folder, server, "java-2") as second:
            expect(
                "while we renew it, Java does not lead",
                not any(_each(2 * _OURS, lambda: not ours.beat() or second.ask("lead") == "yes")),
            )
            waited = _until(lambda: second.ask("lead") == "yes")
            expect(
                f"once we are silent, Java leads after about {_OURS} s ({waited:.1f})",
                0.7 * _OURS < waited < _OURS + _LATE,
            )
            expect("and we notice", not ours.beat())
            ours.release()
            expect("what we lost is not ours to release", second.ask("lead") == "yes")
            second.ask("release")
            expect("Java's release leaves no row", _row(dynamodb) is None)
            expect("and we lead at once", ours.lead())
            ours.release()
            expect("our release lets Java lead at once", second.ask("lead") == "yes")
            second.ask("leave")
            row = _row(dynamodb) or {}
            expect("a released lock that Java leaves is marked", "isReleased" in row)
            expect("and we lead at once", ours.lead())
            row = _row(dynamodb) or {}
            expect("with a row without the mark", row and "isReleased" not in row)
            expect("which Java respects", second.ask("lead") == "no")
    return problems


_KEY = {"S": "Leader"}


def _row(dynamodb: Any) -> dict[str, Any] | None:
    item: dict[str, Any] | None = dynamodb.get_item(
        TableName=_TABLE, Key={"leaseKey": _KEY}, ConsistentRead=True
    ).get("Item")
    return item


def _each(seconds: float, ask: Callable[[], bool]) -> Iterator[bool]:
    """Ask again and again for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield ask()
        time.sleep(0.1)


def _until(holds: Callable[[], bool]) -> float:
    """Wait; return after how many seconds it holds."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() > began + 30:
            raise ScenarioError("the lock has not changed hands within 30 seconds")
        time.sleep(0.05)
    return time.monotonic() - began


@contextmanager
def _java(folder: Path, server: LocalServer, name: str) -> Iterator[JavaLock]:
    folder.mkdir(parents=True, exist_ok=True)
    arguments = (name, server.endpoint_url, _TABLE, str(round(_JAVAS * 1000)))
    with (
        (folder / f"{name}.log").open("w") as log,
        subprocess.Popen(
            command(*arguments, main="JavaLock"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield JavaLock(process)
        finally:
            process.kill()
