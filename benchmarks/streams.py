"""An application of 1,000 streams of one shard each: its start, its cost when idle, its failover.

The local server runs in a process of its own, with the service's limits for an account, and counts
the calls. Each stream has one record before each start; the time ends with the last stream's
record. Workers are processes with the default options. CPU and memory are the workers' own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks import tls
from benchmarks.proc_stat import cpu_of
from benchmarks.report import Result, print_table
from benchmarks.streams_side import name_of
from sparkinesis.local import LocalServer

STREAMS = 1000
WORKERS = 3
IDLE = 20.0
"""Seconds for which an idle application is measured."""
PATIENCE = 300.0
_SHARD = ("GetRecords", "GetShardIterator")
"""The calls that each shard makes by itself, however many streams the application reads."""


class Server:
    """The local Kinesis and DynamoDB, in another process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.endpoint, self.dynamodb_endpoint = pipe.recv()

    def put(self, data: str) -> None:
        """Put one record into each stream."""
        self._ask("put", data)

    def calls(self) -> Counter[str]:
        """Return the calls since the last question, by operation; refused ones by error, too."""
        return Counter(self._ask("calls"))

    def _ask(self, *question: str) -> dict[str, int]:
        self._pipe.send(question)
        answer: dict[str, int] = self._pipe.recv()
        return answer

    def stop(self) -> None:
        self._pipe.send(("stop",))


def _serve(pipe: Connection, streams: int) -> None:
    names = [name_of(number) for number in range(streams)]
    # Two of them, so that the calls of shards and those of leases do not share a thread.
    certificate = tls.certificate()
    with (
        LocalServer(limits=False, certificate=certificate) as server,
        LocalServer(dynamodb=True, certificate=certificate) as tables,
    ):
        kinesis = server.kinesis
        for name in names:
            kinesis.call("CreateStream", StreamName=name, ShardCount=1)
        kinesis.limits = True
        pipe.send((server.endpoint_url, tables.endpoint_url))
        while (question := pipe.recv())[0] != "stop":
            found: Counter[str] = Counter()
            if question[0] == "put":
                data = question[1].encode()
                for name in names:
                    kinesis.call("PutRecord", StreamName=name, Data=data, PartitionKey="k")
            else:
                for call in (*kinesis.calls, *tables.kinesis.calls):
                    found[call.operation] += 1
                    if call.error is not None:
                        found[f"{call.operation}: {call.error}"] += 1
            kinesis.calls.clear()
            tables.kinesis.calls.clear()
            pipe.send(found)


@contextmanager
def serving(streams: int) -> Iterator[Server]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, streams))
    process.start()
    server = Server(ours)
    try:
        yield server
    finally:
        server.stop()
        process.join()


class Side:
    """A worker process, and what it has told."""

    def __init__(self, server: Server, application: str, streams: int, retrieval: str) -> None:
        module = [sys.executable, "-m", "benchmarks.streams_side"]
        command = [*module, server.endpoint, server.dynamodb_endpoint, application]
        credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        self.log = Path("build") / f"streams-{application}.log"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, str(streams), retrieval],
                env={**os.environ, **credentials},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.shards = 0
        self.records: Counter[tuple[str, str]] = Counter()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if "stream" in told:
                self.records[told["stream"], told["data"]] += 1
            self.shards = told.get("shards", self.shards)

    @property
    def cpu(self) -> float:
        return cpu_of(self.process.pid)

    def state(self, name: str) -> int:
        """Return a number of /proc/PID/status, such as VmRSS in KiB or Threads."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition(f"{name}:")[2].split()[0])

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)


def seconds_until(condition: Callable[[], bool], sides: list[Side], what: str) -> float:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE:
            logs = "\n".join(side.log.read_text()[-2000:] for side in sides)
            raise RuntimeError(f"{what} took longer than {PATIENCE:g} s:\n{logs}")
        time.sleep(0.05)
    return time.monotonic() - began


def have_all(sides: list[Side], data: str, streams: int) -> Callable[[], bool]:
    def check() -> bool:
        done = {name for side in sides for name, told in list(side.records) if told == data}
        return len(done) >= streams

    return check


def told(calls: Counter[str]) -> str:
    """Name the calls of a start, without those of shards and of renewals."""
    return ", ".join(f"{count} {name}" for name, count in sorted(calls.items()))


def share(sides: list[Side]) -> str:
    return "/".join(str(side.shards) for side in sides)


def is_balanced(sides: list[Side], streams: int) -> Callable[[], bool]:
    def check() -> bool:
        shards = [side.shards for side in sides]
        return sum(shards) == streams and max(shards) - min(shards) <= 1

    return check


def idle(server: Server, sides: list[Side]) -> list[Result]:
    """The cost of an application whose streams have no records for a while."""
    server.calls()
    before, began = sum(side.cpu for side in sides), time.monotonic()
    time.sleep(IDLE)
    seconds = time.monotonic() - began
    cpu = (sum(side.cpu for side in sides) - before) / seconds
    calls = server.calls()
    rates = {name: count / seconds for name, count in calls.items()}
    others = sum(rate for name, rate in rates.items() if name not in _SHARD)
    by_name = ", ".join(f"{rate:.1f} {name}" for name, rate in sorted(rates.items()))
    who = "one worker" if len(sides) == 1 else f"{len(sides)} workers"
    return [
        Result(f"idle, {who}: CPU a second", cpu, "s"),
        Result(f"idle, {who}: calls a second besides GetRecords", others, "calls", note=by_name),
        Result(
            f"idle, {who}: resident memory of each",
            sum(side.state("VmRSS") for side in sides) / len(sides) / 1024,
            "MiB",
            note=f"{', '.join(str(side.state('Threads')) for side in sides)} threads",
        ),
    ]


@dataclass
class Application:
    """Worker processes of one application, on a server of their own."""

    server: Server
    streams: int
    retrieval: str
    sides: list[Side] = field(default_factory=list)

    def start(self, what: str, data: str, workers: int) -> Iterator[Result]:
        """Start workers, and wait until each stream's record was processed."""
        self.server.put(data)
        self.server.calls()
        self.sides = [
            Side(self.server, f"workers-{workers}", self.streams, self.retrieval)
            for _ in range(workers)
        ]
        took = seconds_until(have_all(self.sides, data, self.streams), self.sides, what)
        calls, cpu = told(self.server.calls()), sum(side.cpu for side in self.sides)
        yield Result(f"{what}: to the records of all", took, "s", note=calls)
        yield Result(f"{what}: CPU of the workers", cpu, "s")

    def balance(self, what: str) -> Iterator[Result]:
        took = seconds_until(is_balanced(self.sides, self.streams), self.sides, what)
        yield Result(what, took, "s", note=share(self.sides))

    def fail_over(self, data: str) -> Iterator[Result]:
        """Kill a worker, and wait until each stream's next record was processed by the others."""
        self.sides.pop().end(signal.SIGKILL)
        self.server.calls()
        self.server.put(data)
        took = seconds_until(have_all(self.sides, data, self.streams), self.sides, "failover")
        calls = told(self.server.calls())
        yield Result("failover of one of three", took, "s", note=calls)

    def end(self) -> None:
        for side in self.sides:
            side.end()


@contextmanager
def application(streams: int, retrieval: str) -> Iterator[Application]:
    with serving(streams) as server:
        found = Application(server, streams, retrieval)
        try:
            yield found
        finally:
            found.end()


def one_worker(streams: int, retrieval: str) -> Iterator[Result]:
    with application(streams, retrieval) as alone:
        yield from alone.start("start, one worker", "first", 1)
        yield from idle(alone.server, alone.sides)
        alone.end()
        yield from alone.start("restart, one worker", "second", 1)


def three_workers(streams: int, retrieval: str) -> Iterator[Result]:
    with application(streams, retrieval) as three:
        yield from three.start("start, three workers", "first", WORKERS)
        yield from three.balance("until each has a third")
        yield from idle(three.server, three.sides)
        yield from three.fail_over("second")
        yield from three.balance("until each of the other two has half")


def run(streams: int = STREAMS, retrieval: str = "polling") -> list[Result]:
    return [*one_worker(streams, retrieval), *three_workers(streams, retrieval)]


def main() -> None:
    retrieval = sys.argv[2] if len(sys.argv) > 2 else "polling"
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else STREAMS
    print_table(str(__doc__).splitlines()[0], run(streams, retrieval))


if __name__ == "__main__":
    main()
