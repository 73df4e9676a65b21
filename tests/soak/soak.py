"""One soak: a calm stretch, a storm of kills and reshards, a second calm stretch, the end."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from sparkinesis.lease.table.table import LeaseTable
from tests.soak.company import RETRIEVALS, Company
from tests.soak.course import Act, course, reshard
from tests.soak.setting import APPLICATION, FLEET_WORKERS, REGION, SHARDS, STREAM
from tests.soak.watch import Watch
from tests.streams import active_shards, merge_neighbours, split

OWN_CONNECTIONS = 4
"""The maximum of connections that the soak itself has to its server."""
SAMPLE_EVERY = 5.0
TELL_EVERY = 60.0
PATIENCE = 120.0
"""Seconds within which all processes must work: at the start, and again after the storm."""


class SoakError(Exception):
    """A process stood still or ended unexpectedly."""


@dataclass(frozen=True)
class Plan:
    """rate: user records a second."""

    seconds: float
    seed: int
    rate: float

    @property
    def calm(self) -> float:
        """Seconds of the calm stretches before and after the storm, which are compared."""
        return min(90.0, self.seconds / 5)

    @property
    def storm(self) -> float:
        return self.seconds - 2 * self.calm


class Soak:
    """The soak's processes; one thread starts, disturbs, watches and ends them."""

    def __init__(
        self, plan: Plan, folder: Path, note: Callable[[str], None], tell: Callable[[Soak], None]
    ) -> None:
        """note: receives each event as text. tell: called every minute to report progress."""
        self.plan = plan
        self.mark = uuid.uuid4().hex
        self.acts: Counter[str] = Counter()
        for name in ("processed", "scratch"):
            (folder / name).mkdir()
        self._rng = random.Random(f"{plan.seed} victims")
        self.company = Company(folder, self.mark, self._rng)
        self.watch = Watch(folder)
        self._note = note
        self._tell = tell
        self._began = self._sampled_at = self._told_at = time.monotonic()
        self._is_calm = False
        self._idle_sockets = 0
        self.kinesis: Any = None
        self._table: Any = None

    @property
    def seconds(self) -> float:
        """Seconds since the soak began."""
        return time.monotonic() - self._began

    # --- the stretches

    def start(self) -> None:
        """Starts everything, and returns when all of it works."""
        company = self.company
        company.start_server(self.plan.seed)
        self._idle_sockets = company.server_footprint().sockets
        self.kinesis = boto3.client(
            "kinesis",
            region_name=REGION,
            endpoint_url=company.endpoint,
            aws_access_key_id="soak",
            aws_secret_access_key="soak",
            config=Config(retries={"mode": "standard", "total_max_attempts": 12}),
        )
        self._table = LeaseTable(APPLICATION, REGION, company.endpoint)
        company.start_producer(self.plan.rate, self.plan.seed)
        company.start_query("steady")
        company.start_query("killed")
        for retrieval in RETRIEVALS:
            company.start_worker(retrieval)
        self._until(lambda: self.watch.numbers, "no record was processed")
        self._until(self._caught_up(), "not everything is at work")

    def calm(self) -> None:
        """Watches a calm stretch: no faults, and as many shards and workers as at the start."""
        self._is_calm = True
        self._watch_until(time.monotonic() + self.plan.calm)
        self._is_calm = False

    def storm(self) -> None:
        began = time.monotonic()
        self.company.weather(bad=True)
        for act in course(self.plan.storm, self.plan.seed):
            self._watch_until(began + act.at)
            self._do(act)
        self._watch_until(began + self.plan.storm)
        self.company.weather(bad=False)

    def settle(self) -> None:
        """Waits until the stream and the workers are as at the start."""
        self._until(lambda: self.company.is_awake, "a worker sleeps")
        while (count := len(active_shards(self.kinesis, STREAM))) != SHARDS:
            self._reshard("split" if count < SHARDS else "merge")
        self._until(self._caught_up(), "not everything is at work again")

    def end_producer(self) -> dict[str, int]:
        """Ends the producer and returns how many numbers of each key it put."""
        self.company.end("producer")
        return self.watch.produced()

    def drain(self, rows: int, numbers: int, seconds: float) -> float | None:
        """Waits until queries and workers have put out this much.

        Returns how long it took; None if it takes longer than ``seconds``.
        """
        began = time.monotonic()
        while (taken := time.monotonic() - began) < seconds:
            self._look()
            if self.watch.has_come_out(rows, numbers):
                return taken
            time.sleep(0.5)
        return None

    def end_clients(self) -> None:
        """Shuts everything but the server down gracefully."""
        self.company.end_clients()
        self.watch.processed.refresh()

    def owners(self) -> dict[str, str]:
        """The owners of leases, by shard."""
        leases = self._table.leases(consistent=True)
        return {lease.key: lease.owner for lease in leases if lease.owner is not None}

    def connections_left(self) -> list[str]:
        """The connections that the server still has open after all clients have ended."""
        have, most = self.company.server_footprint().sockets, self._idle_sockets + OWN_CONNECTIONS
        return [f"the server has {have} sockets; {most} are allowed"] if have > most else []

    def end_server(self) -> None:
        self.company.end("server")
        self.kinesis.close()

    # --- what happens

    def _do(self, act: Act) -> None:
        told = self._happen(act.name)
        if told:
            self.acts[act.name] += 1
            self._note(told)

    def _happen(self, name: str) -> str | None:
        """Performs an event and returns its description; None if it was not possible."""
        if name in {"split", "merge"}:
            return self._reshard(name)
        if name == "kill query":
            return self.company.kill_query()
        if name == "kill fleet worker":
            events = self.watch.processed.events
            hosts = {e["pid"]: e["worker"] for e in events if e["event"] == "initialize"}
            return self.company.kill_fleet_worker(hosts, set(self.owners().values()))
        if name == "pause worker":
            return self.company.pause_worker()
        return self.company.replace_worker(kill=name == "kill worker")

    def _reshard(self, wanted: str) -> str:
        count = len(active_shards(self.kinesis, STREAM))
        if reshard(wanted, count) == "split":
            return f"{split(self.kinesis, STREAM, self._rng)} split, {count} shards were open"
        left, right = merge_neighbours(self.kinesis, STREAM, self._rng)
        return f"{left} and {right} merged, {count} shards were open"

    # --- watching

    def _caught_up(self) -> Callable[[], bool]:
        """Returns a check: all records of now have come out, and all workers have leases."""
        put = max(1, sum(self.watch.produced().values()))
        # What was stored twice is in the rows, too: one more than any query has shows that it goes.
        rows = 1 + max(put, self.watch.killed_query.rows, self.watch.steady_query.rows)
        workers = len(RETRIEVALS) + FLEET_WORKERS

        def holds() -> bool:
            if not self.watch.has_come_out(rows, put):
                return False
            owners = [lease.owner for lease in self._table.leases() if not lease.is_finished]
            return len(owners) == SHARDS and len(set(owners) - {None}) == workers

        return holds

    def _watch_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._look()
            time.sleep(min(0.5, left))

    def _until(self, condition: Callable[[], object], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise SoakError(f"After {PATIENCE:g} s {otherwise}.")
            self._look()
            time.sleep(0.5)

    def _look(self) -> None:
        """Resumes stopped processes, checks that all processes live, and takes due samples."""
        self.company.wake()
        gone = self.company.gone()
        if gone is not None:
            raise SoakError(f"{gone.name} has ended by itself:\n{gone.last_words()}")
        now = time.monotonic()
        if now - self._sampled_at >= SAMPLE_EVERY:
            self._sampled_at = now
            self.watch.look(self.company.names, self.seconds, calm=self._is_calm)
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            self._tell(self)
