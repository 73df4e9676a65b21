"""A fleet of worker processes, somebody who watches its lease table, and what its logs tell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkinesis.lease.table.table import LeaseTable
from tests import pace
from tests.pace import Deadline

MODULE = "tests.integration.worker.fleet_process"


@dataclass
class Fleet:
    """Worker processes by worker id."""

    endpoint: str
    stream: str
    folder: Path
    failover_time: float
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    count: int = 0

    def start(self) -> str:
        """Start one more worker, and wait until it is at work."""
        worker = f"worker-{self.count}"
        retrieval = ("polling", "efo")[self.count % 2]
        self.count += 1
        with (self.folder / f"{worker}.err").open("wb") as errors:
            command = [sys.executable, "-m", MODULE, self.endpoint, self.stream, worker]
            log = str(self.folder / f"{worker}.log")
            command += [log, str(self.failover_time), retrieval]
            self.running[worker] = subprocess.Popen(command, stderr=errors)
        while not any(event["event"] == "start" for event in self.events(worker)):
            assert self.running[worker].poll() is None, self.errors(worker)
            time.sleep(0.05)
        return worker

    def kill(self, worker: str) -> None:
        self.running[worker].kill()
        self.running.pop(worker).wait()

    def terminate(self, worker: str) -> None:
        """SIGTERM; waits for the process to end well."""
        process = self.running.pop(worker)
        process.send_signal(signal.SIGTERM)
        assert process.wait(pace.seconds(60)) == 0, self.errors(worker)

    def pause(self, worker: str) -> None:
        os.kill(self.running[worker].pid, signal.SIGSTOP)

    def resume(self, worker: str) -> float:
        """SIGCONT; returns when it was sent."""
        sent = time.monotonic()
        os.kill(self.running[worker].pid, signal.SIGCONT)
        return sent

    def events(self, worker: str) -> Iterator[dict[str, Any]]:
        path = self.folder / f"{worker}.log"
        for line in path.read_text().splitlines() if path.exists() else ():
            yield json.loads(line)

    def all_events(self) -> list[dict[str, Any]]:
        """What all workers wrote down, in order of time."""
        events = [e for n in range(self.count) for e in self.events(f"worker-{n}")]
        return sorted(events, key=lambda event: float(event["at"]))

    def has_shards(self, worker: str) -> bool:
        """True if the worker reads a shard: a lease may name an owner that has not adopted it."""
        events = list(self.events(worker))
        begun = {e["acquisition"] for e in events if e["event"] == "initialize"}
        over = {
            e["acquisition"]
            for e in events
            if e["event"] == "lease_lost" or e.get("checkpoint") == "SHARD_END"
        }
        return bool(begun - over)

    def errors(self, worker: str) -> str:
        return (self.folder / f"{worker}.err").read_text()[-5000:]


class Watcher:
    """Looks at the owners of unfinished leases again and again, in a thread of its own."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._owners: dict[str, str | None] = {}
        self._looked = threading.Condition()
        self._looks = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_until_fair(self, shards: set[str], workers: set[str]) -> None:
        """Wait until the unfinished leases are those of the shards, and the workers share them.

        Only looks that begin after the call count.
        """

        def is_fair() -> bool:
            counts = Counter(self._owners.values())
            return (
                self._looks > first
                and set(self._owners) == shards
                and set(counts) == workers
                and max(counts.values()) - min(counts.values()) <= 1
            )

        deadline = Deadline(90)
        with self._looked:
            first = self._looks + 1
            while not self._looked.wait_for(is_fair, 1):
                assert self._thread.is_alive(), "the table cannot be read"
                assert not deadline.has_passed(), (shards, workers, self._owners)

    def _watch(self) -> None:
        while not self._stopping.wait(pace.seconds(0.4)):
            rows = self._table.leases(consistent=True)
            with self._looked:
                self._owners = {row.key: row.owner for row in rows if not row.is_finished}
                self._looks += 1
                self._looked.notify_all()


def orders_of_first_sight(events: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The numbers of each key, in the order in which they were first processed."""
    seen: dict[str, dict[int, None]] = defaultdict(dict)
    for event in events:
        for data in event.get("data", ()):
            key, number = data.split(":")
            seen[key].setdefault(int(number))
    return {key: list(numbers) for key, numbers in seen.items()}


def rival_checkpoints(events: list[dict[str, Any]]) -> list[str]:
    """Checkpoints by an acquisition after another one had begun to checkpoint, or backwards.

    In order of when they were sent: a paused worker may hear of one only when it wakes. Of two that
    were under way at once, either may have been the first.
    """
    found = []
    by_shard: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(events, key=lambda event: float(event.get("began", 0))):
        if event["event"] == "checkpoint":
            by_shard[event["shard"]].append(event)
    for shard, checkpoints in by_shard.items():
        first: dict[tuple[str, int], tuple[float, float]] = {}
        place = (0, 0)
        for event in checkpoints:
            who = (event["worker"], event["acquisition"])
            _, since = first.setdefault(who, (event["began"], event["at"]))
            others = [span for other, span in first.items() if other != who]
            if any(event["began"] > at and began > since for began, at in others):
                found.append(f"{shard}: {who} at {event['at']} after {first}")
            if event["checkpoint"] != "SHARD_END":
                sequence, sub = event["checkpoint"].split(":")
                if (int(sequence), int(sub)) < place:
                    found.append(f"{shard}: back to {event['checkpoint']} by {who}")
                place = (int(sequence), int(sub))
    return found
