"""Runs all benchmarks, or those named: call, decode, deaggregate, objects, source, source_cpu,
planning, scale, local_server, leases, latency, spark_latency, spark_idle, memory, queues, growth,
idle_shards, scrape.

python -m benchmarks                          # all
python -m benchmarks decode source            # two of them
python -m benchmarks idle_shards --shards 10  # one that has options
python -m benchmarks source call --tls        # over TLS, with a certificate made for the run; all
                                              # that read or put records if none is named
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import (
    call,
    deaggregate,
    decode,
    growth,
    idle_shards,
    latency,
    leases,
    local_server,
    memory,
    objects,
    planning,
    queues,
    scale,
    scrape,
    source,
    source_cpu,
    spark_idle,
    spark_latency,
    tls,
)
from benchmarks.report import Result, print_table, write_json

BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "call": call.run,
    "decode": decode.run,
    "deaggregate": deaggregate.run,
    "objects": objects.run,
    "source": source.run,
    "source_cpu": source_cpu.run,
    "planning": planning.run,
    "scale": scale.run,
    "local_server": local_server.run,
    "leases": leases.run,
    "latency": latency.run,
    "spark_latency": spark_latency.run,
    "spark_idle": spark_idle.run,
    "memory": memory.run,
    "queues": queues.run,
    "growth": growth.run,
    "idle_shards": idle_shards.run,
    "scrape": scrape.run,
}
WITH_OPTIONS: dict[str, Callable[[list[str]], int]] = {
    "growth": growth.main,
    "idle_shards": idle_shards.main,
}
OVER_TLS = tuple(
    name
    for name in BENCHMARKS
    if name not in {"decode", "deaggregate", "objects", "planning", "scale", "leases", "scrape"}
)
"""Those that put or read records by calls."""
TLS = "--tls"
HELP = (["-h"], ["--help"])
OUTPUT = Path("build/benchmarks.json")


def main(names: list[str]) -> int:
    if names in HELP:
        print(__doc__, idle_shards.parser().format_help(), sep="\n")
        return 0
    if TLS in names:
        with tls.over_tls():
            return _run([name for name in names if name != TLS], OVER_TLS)
    return _run(names, tuple(BENCHMARKS))


def _run(names: Sequence[str], known: Sequence[str]) -> int:
    """Run the named ones of those that are known, or all."""
    if len(names) > 1 and names[0] in WITH_OPTIONS and names[1].startswith("-"):
        return WITH_OPTIONS[names[0]]([*names[1:]])
    unknown = set(names) - set(known)
    if unknown:
        print(f"No benchmark {', '.join(sorted(unknown))}; there are: {', '.join(known)}.")
        return 2
    console = Console()
    results: list[Result] = []
    for name in names or known:
        with console.status(f"Running {name} ..."):
            found = BENCHMARKS[name]()
        results += found
        print_table(name, found, console)
    write_json(results, OUTPUT)
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    console.print(f"{machine}. Written to {OUTPUT}.")
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
