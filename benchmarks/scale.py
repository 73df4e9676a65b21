"""What shards cost: plans of 1,000 and 10,000 idle ones, looks at large lease tables, the model.

The local Kinesis is a process of its own. The planner's part measures what Spark calls: offsets
come and go as text. The calls of an application are counted in a simulated world, and compared with
those that the model (`benchmarks.cost_model`) says.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import msgspec
from pyspark.sql.streaming.datasource import ReadAllAvailable
from rich.console import Console
from rich.table import Table

from benchmarks.cost_model import Application, Query, least_failover_time, quotas
from benchmarks.filled_server import filled_server
from benchmarks.proc_stat import peak_memory
from benchmarks.report import Result, print_table
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, encode_lease
from sparkinesis.lease.rules.observations import observe, unread_since
from sparkinesis.lease.rules.other_workers import WorkerVersions, observe_renewals
from sparkinesis.lease.rules.taker import TakeSettings, plan_takes
from sparkinesis.lease.table.rows import read_rows
from sparkinesis.local import ManualClock
from sparkinesis.source.datasource import KinesisStreamReader
from sparkinesis.source.options.checked_options import stream_read_options
from sparkinesis.source.options.option_table import Options

SHARDS = (1, 1_000, 10_000)
ACTIVE = 10
"""The shards that get a record before a batch."""
PLANS = 5
LEASES = ((1_000, 10), (10_000, 100), (100_000, 1_000))
"""Leases and workers."""
SIMULATED = ((100, 10), (100, 100))
HASH_KEYS = 2**128
NUMBER = 49_680_417_772_080_139_964_390_719_210_533_025_828_023_069_882_475_000_000


def put(kinesis: Any, shards: int, to: range) -> None:
    """Put a record into each of some shards."""
    for first in range(to.start, to.stop, 500):
        keys = [n * (HASH_KEYS // shards) + 1 for n in range(first, min(first + 500, to.stop))]
        entries = [
            {"Data": b"x" * 100, "PartitionKey": "k", "ExplicitHashKey": str(key)} for key in keys
        ]
        answer = kinesis.put_records(StreamName="wide", Records=entries)
        assert answer["FailedRecordCount"] == 0


def fill(kinesis: Any, clock: ManualClock, shards: int) -> None:
    kinesis.create_stream(StreamName="wide", ShardCount=shards)
    clock.advance(1_000)
    put(kinesis, shards, range(shards))
    clock.advance(60_000)


def plan(pipe: Connection, endpoint: str, shards: int) -> None:
    """Send CPU seconds of the first plan, of idle ones, and of a batch; memory and bytes."""
    options = {
        "streamName": "wide",
        "region": "us-east-1",
        "endpoint": endpoint,
        "initialPosition": "trim_horizon",
        "minFetchPeriod": "0s",
        "shardCallsPerSecond": "unlimited",
        "shardBytesPerSecond": "unlimited",
    }
    reader = KinesisStreamReader(stream_read_options(Options(options)))
    offset = json.dumps(reader.initialOffset())

    def latest(offset: str) -> tuple[float, str]:
        cpu = time.process_time()
        end = reader.latestOffset(json.loads(offset), ReadAllAvailable())
        return time.process_time() - cpu, json.dumps(end)

    first, offset = latest(offset)
    idle = []
    for _ in range(PLANS):
        cpu, end = latest(offset)
        assert end == offset, "an idle plan stores nothing"
        idle.append(cpu)
    most = peak_memory()
    import boto3  # noqa: PLC0415 - a query does not import it

    kinesis = boto3.client(
        "kinesis",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    put(kinesis, shards, range(min(shards, ACTIVE)))
    batch, end = latest(offset)
    ranges = sum(len(one.to_read) for one in reader.partitions(json.loads(offset), json.loads(end)))
    assert ranges == min(shards, ACTIVE), ranges
    pipe.send((first, sorted(idle)[PLANS // 2], batch, most, len(offset)))


def planned(shards: int) -> tuple[float, float, float, int, int]:
    """The figures of `plan`, of a process of its own."""
    spawning = multiprocessing.get_context("spawn")
    with filled_server(partial(fill, shards=shards)) as endpoint:
        ours, theirs = spawning.Pipe()
        process = spawning.Process(target=plan, args=(theirs, endpoint, shards), daemon=True)
        process.start()
        found: tuple[float, float, float, int, int] = ours.recv()
        process.join()
    return found


def plans() -> list[Result]:
    results: list[Result] = []
    alone = 0
    for shards in SHARDS:
        first, idle, batch, memory, size = planned(shards)
        alone = alone or memory
        name = f"{shards:,} shards"
        more = f"{(memory - alone) / shards:,.0f} bytes a shard" if shards > 1 else ""
        results += [
            Result(f"{name}, the first plan", first, "CPU s"),
            Result(f"{name}, an idle plan", idle, "CPU s", note=f"median of {PLANS}"),
            Result(f"{name}, a plan, records in {min(shards, ACTIVE)} of them", batch, "CPU s"),
            Result(f"{name}, peak memory of the planner", memory / 2**20, "MiB", note=more),
            Result(f"{name}, an offset", size, "bytes", note=f"{size / shards:.0f} a shard"),
        ]
    return results


def leases(count: int, workers: int, counter: int) -> list[Lease]:
    span = HASH_KEYS // count
    return [
        Lease(
            f"shardId-{n:012d}",
            f"shardId-{n:012d}",
            ExtendedSequenceNumber(str(NUMBER + n)),
            owner=f"worker-{n % workers:04d}",
            counter=counter,
            hash_range=(n * span, (n + 1) * span - 1),
            throughput_kbps=1.5,
        )
        for n in range(count)
    ]


def cpu_of(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def look(count: int, workers: int) -> list[Result]:
    """CPU seconds of one look of one worker at the whole table, and of the decision alone."""
    me = "worker-0000"
    settings = TakeSettings(10, 2**31, 2**31, 30, 1.65)
    before = leases(count, workers, 1)
    known = observe({}, before, 0.0, me)
    versions = observe_renewals(WorkerVersions(), before, 0.0, 10)
    items = {"Items": [encode_lease(one) for one in leases(count, workers, 2)]}
    body = msgspec.json.encode(items)
    rows = leases(count, workers, 2)
    held = {row.key for row in rows if row.owner == me}

    def decide(worker: str, held: set[str]) -> None:
        plan_takes(rows, known, worker, 2.0, settings, rng=random.Random(1), held=held)

    def whole() -> None:
        found = read_rows(msgspec.json.decode(body)["Items"]).leases
        seen = observe(known, found, 2.0, me, held)
        observe_renewals(versions, found, 2.0, 10)
        unread_since(found, seen, 2.0, 10, held)
        plan_takes(found, seen, me, 2.0, settings, rng=random.Random(1), held=held)

    name = f"{count:,} leases of {workers:,} workers"
    each = "of one worker"
    return [
        Result(f"{name}, the decision", cpu_of(lambda: decide(me, held)), "CPU s", note=each),
        Result(
            f"{name}, that of a new worker",
            cpu_of(lambda: decide("new", set())),
            "CPU s",
            note=each,
        ),
        Result(f"{name}, the whole look", cpu_of(whole), "CPU s", note=each),
    ]


def simulated(shards: int, workers: int) -> list[Result]:
    """The calls a second of an idle application in the simulation, beside those of the model."""
    from tests.simulation.history import History, Start  # noqa: PLC0415 - not part of the package
    from tests.simulation.world import World  # noqa: PLC0415

    def calls(seconds: float) -> Counter[str]:
        starts = tuple((0.1 * n, Start(n)) for n in range(workers))
        world = World(History(seed=1, shards=shards, events=starts, duration=seconds)).run()
        found: Counter[str] = Counter()
        for (_, operation), count in world.calls.items():
            found[operation] += count
        return found

    first, longer = 60.0, 90.0
    before, after = calls(first), calls(longer)
    rate = {name: (after[name] - before[name]) / (longer - first) for name in after}
    # A worker renews a single lease by UpdateItem.
    rate["renewals"] = rate.pop("BatchExecuteStatement", 0.0) + rate.pop("UpdateItem", 0.0)
    model = Application(shards, workers)
    expected = {
        "GetRecords": model.get_records,
        "renewals": model.renewal_calls,
        "Scan": model.scan_calls,
    }
    others = sum(rate.values()) - sum(rate[name] for name in expected)
    name = f"simulated: {shards:,} shards, {workers:,} workers"
    return [
        *(
            Result(f"{name}, {each}", rate[each], "calls/s", note=f"the model says {value:,.1f}")
            for each, value in expected.items()
        ),
        Result(f"{name}, all others", others, "calls/s"),
    ]


def led(application: Application) -> Application:
    """The same application, in which a leader assigns the leases."""
    options = replace(application.options, balance="load")
    return replace(application, options=options)


def print_model(console: Console | None = None) -> None:
    """Print the tables of docs/scale.md."""
    console = console or Console()
    sizes = [(1_000, 10), (10_000, 100), (100_000, 1_000)]
    applications = [Application(shards, workers) for shards, workers in sizes]
    rows: list[tuple[str, Callable[[Any], str]]] = [
        ("GetRecords a second, by polling", lambda a: f"{a.get_records:,.0f}"),
        ("SubscribeToShard a second, by fan-out", lambda a: f"{a.subscribe:,.1f}"),
        ("BatchExecuteStatement a second", lambda a: f"{a.renewal_calls:,.0f}"),
        ("write units a second", lambda a: f"{a.write_units:,.0f}"),
        ("Scan a second", lambda a: f"{a.scan_calls:,.0f}"),
        ("read units a second", lambda a: f"{a.read_units:,.0f}"),
        ("the same with a leader", lambda a: f"{led(a).read_units:,.0f}"),
        ("ListShards an hour, of the leader", lambda a: f"{a.listings:,.0f}"),
        ("CPU of a worker, polling, cores", lambda a: f"{a.worker_cpu:.2f}"),
        ("the part of the table in it, cores", lambda a: f"{a.table_cpu:.2f}"),
        ("memory of a worker for the table, MB", lambda a: f"{a.table_memory / 1e6:,.0f}"),
        (
            "failover_time for 40,000 read units a second, s",
            lambda a: f"{max(10.0, least_failover_time(a.shards, a.workers)):,.0f}",
        ),
        (
            "quotas hit",
            lambda a: ", ".join(quota.name for quota in quotas(a) if quota.is_hit) or "none",
        ),
    ]
    headings = [f"{shards:,} shards, {workers:,} workers" for shards, workers in sizes]
    console.print(_model("an application, idle, default options", headings, rows, applications))
    queries = [Query(shards) for shards, _ in sizes]
    rows = [
        ("calls of the first plan", lambda q: f"{q.first_calls:,}"),
        ("calls of an idle plan", lambda q: f"{q.calls:,}"),
        ("CPU of an idle plan, s", lambda q: f"{q.cpu:.2f}"),
        ("time of an idle plan, s", lambda q: f"{q.seconds:.2f}"),
        ("an offset, MB", lambda q: f"{q.offset / 1e6:.2f}"),
        ("offsets in the checkpoint, MB", lambda q: f"{q.checkpoint / 1e6:,.0f}"),
        ("offsets in the driver's progress, MB", lambda q: f"{q.progress / 1e6:,.0f}"),
        ("more memory of the planner, MB", lambda q: f"{q.memory / 1e6:,.0f}"),
    ]
    headings = [f"{shards:,} shards" for shards, _ in sizes]
    console.print(_model("a query, idle, 10 ms a call", headings, rows, queries))


def _model(
    title: str,
    headings: Sequence[str],
    rows: Sequence[tuple[str, Callable[[Any], str]]],
    sizes: Sequence[object],
) -> Table:
    """Return a table of the model: a row for each figure, a column for each size."""
    table = Table(title=title, title_justify="left")
    for heading in ("", *headings):
        table.add_column(heading, justify="right" if heading else "left")
    for name, figure in rows:
        table.add_row(name, *map(figure, sizes))
    return table


def run() -> list[Result]:
    results = plans()
    for count, workers in LEASES:
        results += look(count, workers)
    for shards, workers in SIMULATED:
        results += simulated(shards, workers)
    print_model()
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
