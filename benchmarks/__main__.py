"""Runs all benchmarks, or those named: decode, deaggregate, objects, source, source_cpu, backlog,
skewed, planning, consumer_mode, local_server, leases, fleet, latency, spark_latency, memory,
streams."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import (
    backlog,
    consumer_mode,
    deaggregate,
    decode,
    fleet,
    latency,
    leases,
    local_server,
    memory,
    objects,
    planning,
    skewed,
    source,
    source_cpu,
    spark_latency,
    streams,
)
from benchmarks.report import Result, print_table, write_json

BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "decode": decode.run,
    "deaggregate": deaggregate.run,
    "objects": objects.run,
    "source": source.run,
    "source_cpu": source_cpu.run,
    "backlog": backlog.run,
    "skewed": skewed.run,
    "planning": planning.run,
    "consumer_mode": consumer_mode.run,
    "local_server": local_server.run,
    "leases": leases.run,
    "fleet": fleet.run,
    "latency": latency.run,
    "spark_latency": spark_latency.run,
    "memory": memory.run,
    "streams": streams.run,
}
OUTPUT = Path("build/benchmarks.json")


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"No benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}.")
        return 2
    console = Console()
    results: list[Result] = []
    for name in names or list(BENCHMARKS):
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
