"""The processes that take part in a soak, and what is done to them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.soak.accounting import Fates
from tests.soak.children import Child
from tests.soak.footprint import Footprint, processes
from tests.soak.setting import PAUSE, environment

RETRIEVALS = ("polling", "polling", "efo")
"""The retrievals of the workers in processes of their own. The first worker is never killed."""


class Company:
    """Owned by one thread. ``mark``: in the environment of all of them."""

    def __init__(self, folder: Path, mark: str, rng: random.Random) -> None:
        self.fates = Fates()
        """The disruptions of workers so far."""
        self.ended: list[str] = []
        """Unexpected ends of processes, as text."""
        self.endpoint = ""
        self._folder = folder
        self._environment = environment(mark, folder / "scratch")
        self._rng = rng
        self._children: dict[str, Child] = {}
        self._asleep: list[tuple[float, Child]] = []
        """Workers that are stopped, and when to wake them."""
        self._count = 0

    @property
    def names(self) -> dict[int, str]:
        """The children's names by process id, which is the session id of all their descendants."""
        return {child.pid: name for name, child in self._children.items()}

    @property
    def is_awake(self) -> bool:
        return not self._asleep

    # --- starting and ending

    def start_server(self, seed: int) -> None:
        """Returns when it listens."""
        self.endpoint = self._start("server", "server", str(seed), is_piped=True).first_line()

    def start_producer(self, rate: float, seed: int) -> None:
        self._start("producer", "producer", self.endpoint, str(self._folder), str(rate), str(seed))

    def start_query(self, kind: str) -> None:
        self._start(f"{kind} query", "query", self.endpoint, str(self._folder), kind)

    def start_worker(self, retrieval: str) -> None:
        name = f"{retrieval}-worker-{self._count}"
        self._count += 1
        processed = str(self._folder / "processed")
        self._start(name, "worker", self.endpoint, processed, name, retrieval)

    def _start(self, name: str, module: str, *arguments: str, is_piped: bool = False) -> Child:
        log = self._folder / f"{name}.log"
        child = Child(
            name, module, *arguments, log=log, environment=self._environment, is_piped=is_piped
        )
        self._children[name] = child
        return child

    def end(self, name: str) -> None:
        """Sends SIGTERM, and waits."""
        self.fates.shut_down[name] = time.monotonic()
        problem = self._children.pop(name).terminate()
        if problem:
            self.ended.append(problem)

    def end_clients(self) -> None:
        """Shuts down all children but the server."""
        for name in [name for name in self._children if name != "server"]:
            self.end(name)

    def close(self) -> None:
        """Kills all processes that are left."""
        for child in self._children.values():
            child.kill()

    # --- what is done to them

    def weather(self, *, bad: bool) -> None:
        self._children["server"].signal(signal.SIGUSR1 if bad else signal.SIGUSR2)

    def kill_query(self) -> str:
        self._children["killed query"].kill()
        self.start_query("killed")
        return "kill -9 of a query's Python and JVM; started again"

    def kill_fleet_worker(self, hosts: Mapping[int, str], owners: Collection[str]) -> str | None:
        """``kill -9`` of the Python process of a worker on Spark that has leases.

        hosts: workers by the process ids that they told of. One without leases may have ended, and
        its process may be reading a shard for the query by now.
        """
        spark = processes({self._children["steady query"].pid})
        pids = [found.pid for found in spark if hosts.get(found.pid) in owners]
        if not pids:
            return None
        pid = self._rng.choice(sorted(pids))
        self.fates.killed.add(hosts[pid])
        os.kill(pid, signal.SIGKILL)
        return f"kill -9 of the Python process of the fleet's {hosts[pid]}"

    def pause_worker(self) -> str | None:
        victim = self._victim()
        if victim is None:
            return None
        self.fates.paused.add(victim.name)
        victim.signal(signal.SIGSTOP)
        self._asleep.append((time.monotonic() + PAUSE, victim))
        return f"{victim.name} is stopped for {PAUSE:g} s"

    def replace_worker(self, *, kill: bool) -> str | None:
        """End one, by ``kill -9`` or SIGTERM, and start another one."""
        victim = self._victim()
        if victim is None:
            return None
        if kill:
            self.fates.killed.add(victim.name)
            self._children.pop(victim.name).kill()
        else:
            self.end(victim.name)
        self.start_worker(victim.name.partition("-")[0])
        return f"{'kill -9' if kill else 'SIGTERM'} of {victim.name}; another one started"

    def _victim(self) -> Child | None:
        """A worker that may be killed or stopped: awake, and not the first one."""
        asleep = {child for _, child in self._asleep}
        workers = [child for name, child in self._children.items() if "worker" in name][1:]
        awake = [child for child in workers if child not in asleep]
        return self._rng.choice(awake) if awake else None

    # --- watching

    def wake(self) -> None:
        """Resumes the stopped processes whose time is over."""
        for wake_at, child in list(self._asleep):
            if time.monotonic() >= wake_at:
                child.signal(signal.SIGCONT)
                self._asleep.remove((wake_at, child))

    def gone(self) -> Child | None:
        """The name of a child that has ended by itself."""
        return next((c for c in self._children.values() if c.exit_code is not None), None)

    def server_footprint(self) -> Footprint:
        found = processes({self._children["server"].pid})
        return next(each.footprint for each in found if each.role == "Python")
