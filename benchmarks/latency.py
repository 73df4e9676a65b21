"""Measures the time from a put to `process_records`, by polling and by enhanced fan-out.

Two workers of two applications read the same stream at the same time, each at its defaults: one by
GetRecords, one by SubscribeToShard. Each record carries the instant before it was put. The local
Kinesis delivers at once what it has, where the service takes about 70 ms for fan-out and a round
trip for a call: so this is what the library adds, not what a network does.
"""

from __future__ import annotations

import base64
import random
import statistics
import threading
import time
from collections.abc import Callable
from typing import Literal

from benchmarks.local_server import Client, local_kinesis
from benchmarks.report import Result, print_table
from sparkinesis import (
    Application,
    Checkpointer,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.worker.lifecycle.worker import Worker

STREAM = "latency"
SHARDS = 4
RECORDS = 1_500
PUTS_PER_SECOND = 50.0
"""One record each, at random instants and on random shards: 30 seconds in all."""
SEED = 17
PATIENCE = 60.0
REQUIRED = 5.0
"""The factor by which the median must be shorter by enhanced fan-out."""
PERCENTILES = (50, 90, 99)


class Arrivals:
    """The records that one application has received; written by its processors' threads."""

    def __init__(self) -> None:
        self.shards: set[str] = set()
        self.milliseconds: list[float] = []
        self._changed = threading.Condition()

    def add(self, shard_id: str, put_at: list[int]) -> None:
        now = time.monotonic_ns()
        with self._changed:
            self.shards.add(shard_id)
            self.milliseconds += [(now - each) / 1e6 for each in put_at]
            self._changed.notify_all()

    def forget(self) -> None:
        with self._changed:
            self.milliseconds.clear()

    def wait_for(self, is_enough: Callable[[Arrivals], bool]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: is_enough(self), PATIENCE):
                raise RuntimeError(f"not delivered within {PATIENCE} s: is the machine busy?")


class Timing(RecordProcessor):
    """Reads the clock before anything else, then the instants in the records."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        put_at = [int(record.data) for record in batch.records]
        self._arrivals.add(self._shard.id, put_at)
        checkpointer.checkpoint()


def put(client: Client, shard: int) -> None:
    data = base64.b64encode(str(time.monotonic_ns()).encode()).decode()
    hash_key = str(shard * (2**128 // SHARDS) + 1)
    client.call(
        "PutRecord", StreamName=STREAM, Data=data, PartitionKey="key", ExplicitHashKey=hash_key
    )


def start(retrieval: Literal["polling", "efo"], endpoint: str, arrivals: Arrivals) -> Worker:
    application = Application(
        f"latency-{retrieval}",
        STREAM,
        lambda: Timing(arrivals),
        region="us-east-1",
        endpoint=endpoint,
        options=WorkerOptions(retrieval=retrieval),
    )
    return application.worker().start()


def measure(client: Client) -> dict[str, list[float]]:
    """Milliseconds from put to processor, by retrieval, sorted."""
    rng = random.Random(SEED)
    seen = {"polling": Arrivals(), "efo": Arrivals()}
    endpoint = client.endpoint
    workers = [
        start("polling", endpoint, seen["polling"]),
        start("efo", endpoint, seen["efo"]),
    ]
    try:
        # Until each reads every shard, and waits at its tip.
        for shard in range(SHARDS):
            put(client, shard)
        for arrivals in seen.values():
            arrivals.wait_for(lambda its: len(its.shards) == SHARDS)
            arrivals.forget()
        for _ in range(RECORDS):
            time.sleep(rng.expovariate(PUTS_PER_SECOND))
            put(client, rng.randrange(SHARDS))
        for arrivals in seen.values():
            arrivals.wait_for(lambda its: len(its.milliseconds) == RECORDS)
    finally:
        for worker in workers:
            worker.shutdown()
    return {retrieval: sorted(arrivals.milliseconds) for retrieval, arrivals in seen.items()}


def run() -> list[Result]:
    with local_kinesis("--dynamodb", has_own_core=True) as client:
        client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        taken = measure(client)
    cuts = {each: statistics.quantiles(times, n=100) for each, times in taken.items()}
    results = []
    for percentile in PERCENTILES:
        polling, efo = (cuts[each][percentile - 1] for each in ("polling", "efo"))
        name = "median" if percentile == 50 else f"{percentile} %"
        required = REQUIRED if percentile == 50 else None
        results += [
            Result(f"polling, {name}", polling, "ms"),
            Result(f"efo, {name}", efo, "ms", polling / efo, required),
        ]
    polling, efo = (taken[each][-1] for each in ("polling", "efo"))
    note = f"put to process_records, of {RECORDS:,} records in {SHARDS} shards"
    return [
        *results,
        Result("polling, slowest", polling, "ms", note=note),
        Result("efo, slowest", efo, "ms", polling / efo, note=note),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
