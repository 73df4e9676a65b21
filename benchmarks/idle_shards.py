"""One worker with 1,000 idle shards, by polling and by enhanced fan-out: what an idle shard costs.

make bench ARGS=idle_shards
make bench ARGS="idle_shards --shards 1000 --seconds 30 --rounds 5 --also v0.1.0 --json FILE"

The worker is a process of its own with the default options, and the local Kinesis and DynamoDB are
another, with the service's limits. Once all shards are read, the worker's CPU, threads and memory
are read from /proc, and the calls from the server's log. Then 50 records are put into random
shards. ``--also`` measures another revision of sparkinesis in turn, with the same Python and
libraries.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.peers.competitors import before
from benchmarks.peers.environments import ROOT, checked_out
from benchmarks.proc_stat import clock_of, told
from benchmarks.report import Result, print_table, write_json
from benchmarks.shards_server import READS, Server, serving
from sparkinesis.local.faults import CallRecord

SHARDS = 1000
SECONDS = 30.0
SETTLE = 12.0
"""Seconds from the first read of the last shard until the measurement: threads that were needed at
the start only end meanwhile."""
RECORDS = 50
PUT_SECONDS = 5.0
ARRIVAL = 30.0
"""Seconds in which the records must have arrived."""
PATIENCE = 180.0
"""Seconds in which all shards must be read, and in which a worker must end."""
RETRIEVALS = {"polling": "polling", "efo": "fan-out"}
LIMITS = {"GetRecords in one second and shard, most": 5.0}
"""What the service allows."""
AIMS = {"CPU": 0.25, "threads": 63.0, "RSS": 250.0}
"""Cores, threads and MB: the most for 1,000 shards."""
UNITS = {
    "CPU": "cores",
    "threads": "threads",
    "threads at the start, most": "threads",
    "RSS": "MB",
    "PSS": "MB",
    "RSS a shard": "KB",
    "until all shards are read": "s",
    "CPU until then": "s",
    "calls a second": "calls/s",
    "GetRecords a second and shard, least": "calls/s",
    "GetRecords a second and shard, most": "calls/s",
    "GetRecords in one second and shard, most": "calls",
    "refused calls": "calls",
    "largest gap between GetRecords of a shard": "s",
    "CPU of a call": "ms",
    "put to process_records, median": "ms",
    "put to process_records, 99 %": "ms",
    "records lost": "records",
    "the server's CPU": "cores",
}
MB = 1e6


@dataclass(frozen=True)
class Case:
    """How many shards a worker reads, and how; for how many seconds it is measured."""

    retrieval: str
    shards: int
    seconds: float


@dataclass
class Side:
    """A worker process."""

    process: subprocess.Popen[str]
    log: Path
    late: list[float] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def told(self, file: str, name: str) -> int:
        """Return a number of a file of /proc/PID, such as VmRSS of status (KiB)."""
        return told(file, name, self.pid)

    def threads(self) -> int:
        return self.told("status", "Threads")

    def rss(self) -> float:
        return self.told("status", "VmRSS") * 1024 / MB

    def listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as told:
            self.late += (float(word) for line in told for word in line.split())


@contextmanager
def worker(
    source: Path, server: Server, streams: str, application: str, *options: str
) -> Iterator[Side]:
    """Run a worker of the sparkinesis in ``source`` during the block: see `shards_side`."""
    module = [sys.executable, "-m", "benchmarks.shards_side"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(source / "src"), str(ROOT)]),
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    with tempfile.TemporaryDirectory(prefix="idle-") as folder:
        log = Path(folder, "log")
        with log.open("w") as out:
            process = subprocess.Popen(
                [*module, server.endpoint, streams, application, *options],
                env=environment,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
            )
        side = Side(process, log)
        listening = threading.Thread(target=side.listen, daemon=True)
        listening.start()
        try:
            yield side
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            listening.join()


def measure(source: Path, server: Server, stream: str, case: Case) -> dict[str, float]:
    """Measure one worker on a stream that is made for it."""
    one = f"{stream}-one"
    server.create(one, 1)
    with worker(source, server, one, one, case.retrieval) as side:
        wait_for_all(server, side, [one], 1)
        time.sleep(SETTLE)
        rss_of_one = side.rss()
    server.delete(one)
    server.clear()
    server.create(stream, case.shards)
    with worker(source, server, stream, stream, case.retrieval) as side:
        found = wait_for_all(server, side, [stream], case.shards)
        time.sleep(SETTLE)
        found |= _steady(server, side, stream, case)
        found["RSS a shard"] = 1000 * (found["RSS"] - rss_of_one) / case.shards
        found |= _latency(server, side, stream, case.shards)
    server.delete(stream)
    return {measure: found[measure] for measure in UNITS if measure in found}


def wait_for_all(
    server: Server, side: Side, streams: Sequence[str], shards: int
) -> dict[str, float]:
    """Wait until so many shards are read, and measure the start."""
    began = time.monotonic()
    threads = 0
    while (read := server.shards_read(streams)) < shards:
        if time.monotonic() > began + PATIENCE or side.process.poll() is not None:
            raise RuntimeError(
                f"{read} of {shards} shards were read in {time.monotonic() - began:.0f} s:\n"
                f"{side.log.read_text()[-2000:]}"
            )
        threads = max(threads, side.threads())
        time.sleep(0.25)
    return {
        "threads at the start, most": max(threads, side.threads()),
        "until all shards are read": time.monotonic() - began,
        "CPU until then": clock_of(side.pid),
    }


def _steady(server: Server, side: Side, stream: str, case: Case) -> dict[str, float]:
    server.clear()
    cpu, servers, began = clock_of(side.pid), server.cpu, time.monotonic()
    threads = 0
    while (left := began + case.seconds - time.monotonic()) > 0:
        threads = max(threads, side.threads())
        time.sleep(min(1.0, left))
    cpu, servers = clock_of(side.pid) - cpu, server.cpu - servers
    took = time.monotonic() - began
    calls = server.calls()
    return {
        "CPU": cpu / took,
        "threads": threads,
        "RSS": side.rss(),
        "PSS": side.told("smaps_rollup", "Pss") * 1024 / MB,
        "calls a second": len(calls) / took,
        "CPU of a call": 1000 * cpu / max(1, len(calls)),
        "the server's CPU": servers / took,
        **pace([call for call in calls if call.stream == stream], case.shards, took),
    }


def pace(calls: Sequence[CallRecord], shards: int, seconds: float) -> dict[str, float]:
    """Return how often each shard of a stream was read, by the calls of so many seconds."""
    refused = sum(call.error is not None for call in calls if call.operation in READS)
    times: dict[str | None, list[int]] = {}
    for call in calls:
        if call.operation == "GetRecords":
            times.setdefault(call.shard, []).append(call.time_ms)
    if not times:
        return {"refused calls": refused}
    counts = [len(each) for each in times.values()] + [0] * (shards - len(times))
    gaps = [later - sooner for each in times.values() for sooner, later in pairwise(each)]
    return {
        "refused calls": refused,
        "GetRecords a second and shard, least": min(counts) / seconds,
        "GetRecords a second and shard, most": max(counts) / seconds,
        "GetRecords in one second and shard, most": max(map(_most_in_a_second, times.values())),
        "largest gap between GetRecords of a shard": max(gaps, default=1000 * seconds) / 1000,
    }


def _most_in_a_second(times: Sequence[int]) -> int:
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= 1000:
            first += 1
        most = max(most, last - first + 1)
    return most


def _latency(server: Server, side: Side, stream: str, shards: int) -> dict[str, float]:
    server.put(stream, shards, RECORDS, PUT_SECONDS, seed=shards)
    until = time.monotonic() + ARRIVAL
    while len(side.late) < RECORDS and time.monotonic() < until:
        time.sleep(0.1)
    late = list(side.late)
    found: dict[str, float] = {"records lost": RECORDS - len(late)}
    if len(late) > 1:
        cuts = statistics.quantiles(late, n=100, method="inclusive")
        found["put to process_records, median"] = cuts[49]
        found["put to process_records, 99 %"] = cuts[98]
    return found


def results(samples: Sequence[tuple[str, str, dict[str, float]]], shards: int) -> Iterator[Result]:
    """Make a result of each measure: medians of the rounds, and what they are of the aims.

    samples: who was measured, how it read, and what was found.
    """
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for who, how, found in samples:
        groups.setdefault((how, who), []).append(found)
    for how in dict.fromkeys(how for how, _ in groups):
        for measured in UNITS:
            for who in (who for other, who in groups if other == how):
                values = [each[measured] for each in groups[how, who] if measured in each]
                if values:
                    yield _result(f"{RETRIEVALS[how]}: {measured}", who, measured, values, shards)


def _result(name: str, who: str, measured: str, values: Sequence[float], shards: int) -> Result:
    """``who``: a revision; "" for this checkout, which alone has to reach the aims."""
    median = statistics.median(values)
    aim = LIMITS.get(measured) or (AIMS.get(measured) if shards == SHARDS else None)
    is_measured = bool(aim and median)
    return Result(
        f"{name}, {who}" if who else name,
        median,
        UNITS[measured],
        aim / median if aim and is_measured else None,
        1.0 if is_measured and not who else None,
        f"{min(values):.3g} - {max(values):.3g}" if len(values) > 1 else "",
    )


def run(
    shards: int = SHARDS,
    seconds: float = SECONDS,
    rounds: int = 1,
    also: Sequence[str] = (),
    retrievals: Sequence[str] = tuple(RETRIEVALS),
) -> list[Result]:
    """Measure this checkout, and other revisions in turn with it."""
    sources = {"": ROOT, **{revision: checked_out(before(revision)) for revision in also}}
    samples = []
    for number in range(rounds):
        for how in retrievals:
            for place, (who, source) in enumerate(
                list(sources.items())[:: 1 if number % 2 == 0 else -1]
            ):
                with serving() as server:
                    case = Case(how, shards, seconds)
                    found = measure(source, server, f"idle-{number}-{how}-{place}", case)
                samples.append((who, how, found))
    return list(results(samples, shards))


def parser_of(name: str, seconds: float) -> argparse.ArgumentParser:
    """Return a parser of the options that benchmarks of many shards have in common.

    seconds: the default of each measurement.
    """
    found = argparse.ArgumentParser(prog=f"python -m benchmarks {name}")
    found.add_argument(
        "--seconds", type=float, default=seconds, help=f"of each measurement; default: {seconds:g}"
    )
    found.add_argument("--only", choices=RETRIEVALS, help="only one way to read")
    found.add_argument(
        "--also",
        metavar="REVISION",
        action="append",
        default=[],
        help="a revision of sparkinesis in git, measured in turn with this checkout",
    )
    found.add_argument("--json", type=Path, help="write the results there, too")
    return found


def parser() -> argparse.ArgumentParser:
    found = parser_of("idle_shards", SECONDS)
    found.add_argument("--shards", type=int, default=SHARDS, help=f"default: {SHARDS}")
    found.add_argument("--rounds", type=int, default=1, help="default: 1")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    retrievals = [given.only] if given.only else list(RETRIEVALS)
    found = run(given.shards, given.seconds, given.rounds, given.also, retrievals)
    print_table(f"One worker, {given.shards:,} idle shards", found)
    if given.json is not None:
        write_json(found, given.json)
    return 0 if all(each.ok for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
