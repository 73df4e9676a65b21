"""A fleet of record processors on Spark, against one plain process on the same core.

The processors do nothing but checkpoint once a second. The local Kinesis and DynamoDB have a core
of their own, the consumers another: of the fleet that is the driver, its JVM and all its workers.
Both sides read the same records, in turn; each is started, has its shards and waits, and then reads
all of them from the beginning. The time is from the first record processed to the last, and the
median round of each side counts.

A worker makes 4 GetRecords calls a second on a shard, of 10,000 records each: the shards are so
many, and the records so small, that the core is the limit and not the pace.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import tls
from benchmarks.local_server import Client, put_body
from benchmarks.report import Result, print_table

STREAM = "records"
SHARDS = 32
SIZE = 10
RECORDS = 100_000
"""The number of records in each shard."""
ROUNDS = 5
SIDES = (0, 1, 2)
"""Workers of the fleet; 0: the plain process. One is what a core is for; two have to share it."""
REQUIRED = 0.9
PATIENCE = 180.0
"""Seconds in which a side has to be ready, and then done."""


@dataclass(frozen=True)
class Run:
    records_per_second: float
    cores: float
    """CPU seconds a second of the Python processes that ran record processors."""


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes that are started within have this one of the machine's cores, modulo their number.

    Where the system cannot do that, they have all of them.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(all_of_them)[core % len(all_of_them)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


@contextmanager
def server(*options: str) -> Iterator[Client]:
    """A local Kinesis and DynamoDB in a process of its own, on the first core."""
    command = [sys.executable, "-m", "sparkinesis.local", "--port", "0", "--dynamodb", "--json"]
    command += ["--stream-delay-ms", "0", *tls.server_options()]
    with pinned(0):
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        client = Client(json.loads(process.stdout.readline())["endpoint"])
        try:
            yield client
        finally:
            client.close()
            process.terminate()


def fill(client: Client, stream: str, shards: int, records: int, size: int = SIZE) -> None:
    """Put the same number of records into each shard, by multiples of 500."""
    client.call("CreateStream", StreamName=stream, ShardCount=shards)
    for shard in range(shards):
        body = json.loads(put_body(stream, size))
        for record in body["Records"]:
            record["ExplicitHashKey"] = str(shard * (2**128 // shards) + 1)
        text = json.dumps(body).encode()
        for _ in range(records // len(body["Records"])):
            client.send("PutRecords", text)


def measure(endpoint: str, application: str, workers: int, folder: Path) -> Run:
    """Let one side read the stream."""
    module = [sys.executable, "-m", "benchmarks.fleet_side"]
    arguments = [endpoint, STREAM, application, str(folder), str(RECORDS), str(workers)]
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    log = folder / "log"
    with pinned(1), log.open("wb") as out:
        side = subprocess.Popen(
            [*module, *arguments], env={**os.environ, **credentials}, stdout=out, stderr=out
        )
    with side:
        try:
            ready = _await(lambda: _settled(folder, max(1, workers)), side, log)
            (folder / "go").touch()
            done = _await(lambda: _told(folder, "done"), side, log)
        finally:
            side.terminate()
    assert all(done[shard]["worker"] == ready[shard]["worker"] for shard in ready), "shards moved"
    return _run(list(done.values()))


def _run(shards: list[dict[str, Any]]) -> Run:
    seconds = max(each["last"] for each in shards) - min(each["first"] for each in shards)
    cpu = 0.0
    for worker in {each["worker"] for each in shards}:
        its = [each for each in shards if each["worker"] == worker]
        cpu += max(each["cpu_last"] for each in its) - min(each["cpu_first"] for each in its)
    return Run(SHARDS * RECORDS / seconds, cpu / seconds)


def _await(
    found: Callable[[], dict[str, Any] | None], side: subprocess.Popen[bytes], log: Path
) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE
    while (what := found()) is None:
        if side.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"A side has ended, or takes too long:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)
    return what


def _told(folder: Path, kind: str) -> dict[str, Any] | None:
    """Reads the report of each shard; None until all shards have one."""
    files = list(folder.glob(f"{kind}-*"))
    if len(files) < SHARDS:
        return None
    return {each.name[len(kind) :]: json.loads(each.read_text()) for each in files}


def _settled(folder: Path, workers: int) -> dict[str, Any] | None:
    """The same, when each worker has its share."""
    ready = _told(folder, "ready")
    shares = Counter(each["worker"] for each in (ready or {}).values()).values()
    return ready if len(shares) == workers and max(shares) - min(shares) <= 1 else None


def run() -> list[Result]:
    runs: dict[int, list[Run]] = {workers: [] for workers in SIDES}
    with server("--no-limits") as client, tempfile.TemporaryDirectory() as folder:
        fill(client, STREAM, SHARDS, RECORDS)
        for number in range(ROUNDS):
            for workers in SIDES if number % 2 == 0 else SIDES[::-1]:
                name = f"round-{number}-{workers}"
                (Path(folder) / name).mkdir()
                runs[workers].append(measure(client.endpoint, name, workers, Path(folder) / name))
    plain = _median(runs[0]).records_per_second
    return [_result(workers, runs[workers], plain) for workers in SIDES]


def _median(runs: list[Run]) -> Run:
    """The round in the middle; of an odd number."""
    return sorted(runs, key=lambda each: each.records_per_second)[len(runs) // 2]


def _result(workers: int, runs: list[Run], plain: float) -> Result:
    median = _median(runs)
    rates = sorted(each.records_per_second for each in runs)
    spread = f"median of {', '.join(f'{rate:,.0f}' for rate in rates)}; {median.cores:.2f} cores"
    if not workers:
        note = f"{SHARDS} shards of {RECORDS:,} records of {SIZE} B; {spread}"
        return Result("record processors, one plain process", plain, "records/s", note=note)
    return Result(
        f"a fleet of {workers} worker{'s' if workers > 1 else ''} on the same core",
        median.records_per_second,
        "records/s",
        median.records_per_second / plain,
        REQUIRED if workers == 1 else None,
        spread,
    )


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
