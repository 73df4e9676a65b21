"""One worker as its shards and streams grow, each shard with a record a second: the cost of each.

make bench ARGS=growth
make bench ARGS="growth --seconds 30 --only efo --also v0.1.0 --json FILE"

The worker is a process of its own with the default options, and checkpoints each shard every ten
seconds. The local Kinesis, with the service's limits, and the lease table are another process. Once
all shards are read and have records, the worker's CPU, threads and memory are read from /proc, and
the calls from the server's log. ``--also`` measures another revision of sparkinesis in turn.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.idle_shards import (
    ARRIVAL,
    RETRIEVALS,
    SETTLE,
    Side,
    parser_of,
    wait_for_all,
    worker,
)
from benchmarks.peers.competitors import before
from benchmarks.peers.environments import ROOT, checked_out
from benchmarks.proc_stat import clock_of
from benchmarks.report import Result, print_table, write_json
from benchmarks.shards_server import Server, serving

SECONDS = 20.0
CHECKPOINT_SECONDS = "10"
KINESIS = ("GetRecords", "GetShardIterator", "SubscribeToShard", "ListShards", "PutRecord")
EVENT = "SubscribeToShardEvent"
UNITS = {
    "CPU": "cores",
    "CPU of a record": "ms",
    "GetRecords": "calls/s",
    "events": "events/s",
    "calls of the lease table": "calls/s",
    "threads": "threads",
    "RSS": "MB",
    "until all shards are read": "s",
    "CPU until then": "s",
    "put to process_records, median": "ms",
    "put to process_records, 99 %": "ms",
    "records lost": "records",
    "the server's CPU": "cores",
}


@dataclass(frozen=True)
class Case:
    """How many streams of how many shards each a worker reads."""

    streams: int
    shards: int

    def __str__(self) -> str:
        many = f"{self.shards:,} shards" if self.shards > 1 else "a shard each"
        return many if self.streams == 1 else f"{self.streams:,} streams, {many}"


CASES = {
    "polling": (Case(1, 10), Case(1, 100), Case(1, 1000), Case(1000, 1)),
    # Consumers of 1,000 streams take four minutes to register: five a second in an account.
    "efo": (Case(1, 10), Case(1, 100), Case(1, 1000)),
}


def measure(
    source: Path, server: Server, case: Case, retrieval: str, seconds: float
) -> dict[str, float]:
    """Measure one worker on a server of its own."""
    streams = [f"stream-{number:04}" for number in range(case.streams)]
    shards = case.streams * case.shards
    for stream in streams:
        server.create(stream, case.shards)
    server.begin_puts(streams, case.shards)
    with worker(
        source, server, ",".join(streams), "growing", retrieval, CHECKPOINT_SECONDS
    ) as side:
        found = wait_for_all(server, side, streams, shards)
        time.sleep(SETTLE)
        found |= _steady(server, side, seconds)
        put = server.end_puts()
        until = time.monotonic() + ARRIVAL
        while len(side.late) < put and time.monotonic() < until:
            time.sleep(0.1)
        found["records lost"] = put - len(side.late)
    return found


def _steady(server: Server, side: Side, seconds: float) -> dict[str, float]:
    server.clear()
    first = len(side.late)
    cpu, servers, began = clock_of(side.pid), server.cpu, time.monotonic()
    time.sleep(seconds)
    cpu, servers = clock_of(side.pid) - cpu, server.cpu - servers
    took = time.monotonic() - began
    late = side.late[first:]
    rates = Counter(call.operation for call in server.calls())
    cuts = statistics.quantiles(late, n=100, method="inclusive")
    of_table = sum(n for name, n in rates.items() if name not in (*KINESIS, EVENT))
    return {
        "CPU": cpu / took,
        "CPU of a record": 1000 * cpu / len(late),
        "GetRecords": rates["GetRecords"] / took,
        "events": rates[EVENT] / took,
        "calls of the lease table": of_table / took,
        "threads": side.threads(),
        "RSS": side.rss(),
        "put to process_records, median": cuts[49],
        "put to process_records, 99 %": cuts[98],
        "the server's CPU": servers / took,
    }


def results(
    samples: Sequence[tuple[str, str, Case, dict[str, float]]],
) -> Iterator[Result]:
    """Make a result of each measure. samples: who was measured, how it read, and what was found."""
    for who, how, case, found in samples:
        of = f"{RETRIEVALS[how]}, {case}"
        for measured, unit in UNITS.items():
            if found.get(measured) or measured == "records lost":
                name = f"{of}: {measured}" + (f", {who}" if who else "")
                yield Result(name, found[measured], unit)


def run(
    seconds: float = SECONDS,
    also: Sequence[str] = (),
    retrievals: Sequence[str] = tuple(RETRIEVALS),
) -> list[Result]:
    """Measure this checkout, and other revisions in turn with it."""
    sources = {"": ROOT, **{revision: checked_out(before(revision)) for revision in also}}
    samples = []
    for how in retrievals:
        for case in CASES[how]:
            for who, source in sources.items():
                with serving(has_moto=False) as server:
                    samples.append((who, how, case, measure(source, server, case, how, seconds)))
    return list(results(samples))


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser_of("growth", SECONDS).parse_args(arguments)
    retrievals = [given.only] if given.only else list(RETRIEVALS)
    found = run(given.seconds, given.also, retrievals)
    print_table("One worker, a record a second and shard", found)
    if given.json is not None:
        write_json(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
