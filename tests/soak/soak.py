"""One soak: a calm stretch, a storm of what happens to fleets and queries, calm again, the end."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import boto3

from sparkinesis.lease.table import LeaseTable
from tests.soak.accounting import processed_numbers
from tests.soak.children import Child
from tests.soak.course import Act, course, reshard
from tests.soak.footprint import Footprint, Found, largest, processes
from tests.soak.growth import Sample
from tests.soak.outcome import BatchFolders, FileSink, ProcessedLines
from tests.soak.processor import KeyedNumber
from tests.soak.setting import (
    APPLICATION,
    FLEET_WORKERS,
    PAUSE,
    REGION,
    SHARDS,
    STREAM,
    environment,
)
from tests.streams import active_shards, merge_neighbours, split

OWN_CONNECTIONS = 4
"""That a soak itself may have to its server."""
SAMPLE_EVERY = 5.0
TELL_EVERY = 60.0
KEPT_BY_SERVER = 250
"""Bytes that the local server takes to keep one user record, which it does for a day."""
START_SECONDS = 120.0
"""In which all has to be there and at work."""
SETTLE_SECONDS = 120.0
"""In which all has to be as it was at the start, when the storm is over."""
RETRIEVALS = ("polling", "polling", "efo")
"""Of the workers in processes of their own. The first is let live."""


class SoakError(Exception):
    """Something stood still, or ended, that should not have."""


@dataclass(frozen=True)
class Plan:
    """rate: user records a second."""

    seconds: float
    seed: int
    rate: float

    @property
    def calm(self) -> float:
        """Seconds before and after the storm, which are compared."""
        return min(90.0, self.seconds / 5)

    @property
    def storm(self) -> float:
        return self.seconds - 2 * self.calm


class Process(NamedTuple):
    """What was sampled as one: a child, and what its processes are for.

    Only Spark's Python workers are several of one child and role. They come and go, and any of them
    may host a fleet's worker or read a shard: of those the largest counts.
    """

    child: str
    role: str
    session: int
    """Another one when the child was killed and started again."""

    def __str__(self) -> str:
        return f"{self.child}, {self.role}"


@dataclass
class History:
    """What happened, for those who judge it."""

    acts: Counter[str] = field(default_factory=Counter)
    killed: set[str] = field(default_factory=set)
    """Workers, by their ids."""
    paused: set[str] = field(default_factory=set)
    samples: dict[Process, list[Sample]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    """What was not well about how processes ended."""


class Soak:
    """Everything real: owned by one thread, which starts, harms, watches and ends the processes."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        note: Callable[[str], None],
        tell: Callable[[Soak], None],
    ) -> None:
        """note: takes what happens, in words. tell: called every minute, to say how it goes."""
        self.plan = plan
        self.history = History()
        self.mark = uuid.uuid4().hex
        self._folder = folder
        self._note = note
        self._tell = tell
        self._rng = random.Random(f"{plan.seed} victims")
        self._children: dict[str, Child] = {}
        self._asleep: list[tuple[float, Child]] = []
        """Workers that are stopped, and when to wake them."""
        self._count = 0
        self._idle_sockets = 0
        self._began = time.monotonic()
        self._sampled_at = self._told_at = self._began
        self._calm = False
        self.seen: set[KeyedNumber] = set()
        """What record processors have processed."""
        self.processed = ProcessedLines(folder / "processed")
        self.killed_query = FileSink(folder / "killed")
        self.steady_query = BatchFolders(folder / "steady")
        self.kinesis: Any = None
        self.table: Any = None

    # --- the stretches

    def start(self) -> None:
        """Start everything, and return when all of it is at work."""
        for name in ("processed", "scratch"):
            (self._folder / name).mkdir()
        server = self._start("server", "server", str(self.plan.seed), is_piped=True)
        self._endpoint = server.first_line()
        (idle,) = (found for found in self._found("server") if found.role == "Python")
        self._idle_sockets = idle.footprint.sockets
        self.kinesis = boto3.client(
            "kinesis",
            region_name=REGION,
            endpoint_url=self._endpoint,
            aws_access_key_id="soak",
            aws_secret_access_key="soak",
        )
        self.table = LeaseTable(APPLICATION, REGION, self._endpoint)
        self._start("producer", "producer", self._endpoint, str(self._folder), *self._pace())
        self._start_query("steady")
        self._start_query("killed")
        for retrieval in RETRIEVALS:
            self._start_worker(retrieval)
        self._until(lambda: self.seen, START_SECONDS, "no record was processed")
        self._until(self._caught_up(), START_SECONDS, "not everything is at work")

    def calm(self) -> None:
        """Watch for a while. Fair weather, as many shards and workers as at the start."""
        self._calm = True
        self._watch_until(time.monotonic() + self.plan.calm)
        self._calm = False

    def storm(self) -> None:
        began = time.monotonic()
        self._children["server"].signal(signal.SIGUSR1)
        for act in course(self.plan.storm, self.plan.seed):
            self._watch_until(began + act.at)
            self._do(act)
        self._watch_until(began + self.plan.storm)
        self._children["server"].signal(signal.SIGUSR2)

    def settle(self) -> None:
        """Wait until the stream and the workers are as at the start."""
        self._until(lambda: not self._asleep, SETTLE_SECONDS, "a worker sleeps")
        while (count := len(active_shards(self.kinesis, STREAM))) != SHARDS:
            self._reshard("split" if count < SHARDS else "merge")
        self._until(self._caught_up(), SETTLE_SECONDS, "not everything is at work again")

    def end_producer(self) -> dict[str, int]:
        """How many numbers of each key were put."""
        self._end("producer")
        produced: dict[str, int] = json.loads((self._folder / "produced.json").read_text())
        return produced

    def drain(self, rows: int, numbers: Collection[KeyedNumber], seconds: float) -> float | None:
        """Wait until all that is stored has come out, by both doors.

        Returns how long it took; None if it takes longer than ``seconds``.
        """
        began = time.monotonic()
        wanted = set(numbers)
        while (taken := time.monotonic() - began) < seconds:
            self._look()
            queries = min(self.killed_query.rows, self.steady_query.rows)
            if queries >= rows and wanted <= self.seen:
                return taken
            time.sleep(0.5)
        return None

    def end(self) -> None:
        """Shut everything down gracefully; the server last."""
        for name in [name for name in self._children if name != "server"]:
            self._end(name)
        self.processed.refresh()

    def owned_leases(self) -> dict[str, str]:
        """Owners by shard."""
        leases = self.table.leases(consistent=True)
        return {lease.key: lease.owner for lease in leases if lease.owner is not None}

    def connections_left(self) -> list[str]:
        """What the server still has open, when nobody is there any more."""
        (server,) = (found for found in self._found("server") if found.role == "Python")
        most = self._idle_sockets + OWN_CONNECTIONS
        have = server.footprint.sockets
        return [f"the server has {have} sockets; {most} are allowed"] if have > most else []

    def end_server(self) -> None:
        self._end("server")
        self.kinesis.close()

    def close(self) -> None:
        """Whatever happened, leave no process behind."""
        for child in list(self._children.values()):
            child.kill()

    # --- processes

    def _pace(self) -> tuple[str, str]:
        return str(self.plan.rate), str(self.plan.seed)

    def _start(self, name: str, module: str, *arguments: str, is_piped: bool = False) -> Child:
        child = Child(
            name,
            module,
            *arguments,
            log=self._folder / f"{name}.log",
            environment=environment(self.mark, self._folder / "scratch"),
            is_piped=is_piped,
        )
        self._children[name] = child
        return child

    def _start_worker(self, retrieval: str) -> None:
        name = f"{retrieval}-worker-{self._count}"
        self._count += 1
        processed = str(self._folder / "processed")
        self._start(name, "worker", self._endpoint, processed, name, retrieval)

    def _start_query(self, kind: str) -> None:
        self._start(f"{kind} query", "query", self._endpoint, str(self._folder), kind)

    def _end(self, name: str) -> None:
        problem = self._children.pop(name).terminate()
        if problem:
            self.history.ended.append(problem)

    def _victims(self) -> list[Child]:
        """Workers that may be harmed: awake, and not the one that is let live."""
        asleep = {child for _, child in self._asleep}
        workers = [c for name, c in self._children.items() if "worker" in name][1:]
        return [child for child in workers if child not in asleep]

    # --- what happens

    def _do(self, act: Act) -> None:
        told = self._happen(act.name)
        if told:
            self.history.acts[act.name] += 1
            self._note(told)

    def _happen(self, name: str) -> str | None:
        """What was done; None if it could not be."""
        if name in {"split", "merge"}:
            return self._reshard(name)
        if name == "kill query":
            self._children["killed query"].kill()
            self._start_query("killed")
            return "kill -9 of a query's Python and JVM; started again"
        if name == "kill fleet worker":
            return self._kill_fleet_worker()
        victims = self._victims()
        if not victims:
            return None
        victim = self._rng.choice(victims)
        if name == "pause worker":
            self.history.paused.add(victim.name)
            victim.signal(signal.SIGSTOP)
            self._asleep.append((time.monotonic() + PAUSE, victim))
            return f"{victim.name} is stopped for {PAUSE:g} s"
        if name == "kill worker":
            self.history.killed.add(victim.name)
            self._children.pop(victim.name).kill()
        else:
            self._end(victim.name)
        self._start_worker(victim.name.partition("-")[0])
        return f"{name} {victim.name}; another one started"

    def _reshard(self, wanted: str) -> str:
        count = len(active_shards(self.kinesis, STREAM))
        if reshard(wanted, count) == "split":
            return f"{split(self.kinesis, STREAM, self._rng)} split, {count} shards were open"
        left, right = merge_neighbours(self.kinesis, STREAM, self._rng)
        return f"{left} and {right} merged, {count} shards were open"

    def _kill_fleet_worker(self) -> str | None:
        """``kill -9`` of a Python process that hosts a worker on Spark."""
        alive = {found.pid for found in self._found("steady query")}
        hosts = {e["pid"]: e["worker"] for e in self._initialized() if e["pid"] in alive}
        if not hosts:
            return None
        pid = self._rng.choice(sorted(hosts))
        self.history.killed.add(hosts[pid])
        os.kill(pid, signal.SIGKILL)
        return f"kill -9 of the Python process of the fleet's {hosts[pid]}"

    def _initialized(self) -> Iterator[dict[str, Any]]:
        return (e for e in self.processed.events if e["event"] == "initialize")

    # --- watching

    def produced(self) -> dict[str, int]:
        """How many numbers of each key are stored so far."""
        told = self._folder / "produced.json"
        return json.loads(told.read_text()) if told.exists() else {}

    def _caught_up(self) -> Callable[[], bool]:
        """Whether all that is stored now has come out, and the leases are shared by all workers."""
        wanted = max(1, sum(self.produced().values()))
        workers = len(RETRIEVALS) + FLEET_WORKERS

        def holds() -> bool:
            rows = (self.killed_query.rows, self.steady_query.rows, len(self.seen))
            if min(rows) < wanted:
                return False
            owners = [lease.owner for lease in self.table.leases() if not lease.is_finished]
            return len(owners) == SHARDS and len(set(owners) - {None}) == workers

        return holds

    def _found(self, *names: str) -> list[Found]:
        return processes({self._children[name].pid for name in names})

    def _watch_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._look()
            time.sleep(min(0.5, left))

    def _until(self, condition: Callable[[], object], seconds: float, otherwise: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise SoakError(f"After {seconds:g} s {otherwise}.")
            self._look()
            time.sleep(0.5)

    def _look(self) -> None:
        """Wake who has slept enough, take samples when it is time, and see that all are there."""
        now = time.monotonic()
        for wake_at, child in list(self._asleep):
            if now >= wake_at:
                child.signal(signal.SIGCONT)
                self._asleep.remove((wake_at, child))
        for child in self._children.values():
            if child.exit_code is not None:
                raise SoakError(f"{child.name} has ended by itself:\n{child.last_words()}")
        if now - self._sampled_at >= SAMPLE_EVERY:
            self._sampled_at = now
            self._sample()
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            self._tell(self)

    def _sample(self) -> None:
        self.seen.update(processed_numbers(self.processed.refresh()))
        self.killed_query.refresh()
        self.steady_query.refresh()
        names = {child.pid: name for name, child in self._children.items()}
        kept = sum(self.produced().values()) * KEPT_BY_SERVER / 2**20
        prints: dict[Process, list[Footprint]] = defaultdict(list)
        for found in processes(set(names)):
            prints[Process(names[found.session], found.role, found.session)].append(found.footprint)
        for process, each in prints.items():
            expected = kept if str(process) == "server, Python" else 0.0
            sample = Sample(self.seconds, largest(each), self._calm, expected, len(each))
            self.history.samples.setdefault(process, []).append(sample)

    @property
    def seconds(self) -> float:
        """Since the soak began."""
        return time.monotonic() - self._began
