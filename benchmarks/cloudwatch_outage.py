"""What a CloudWatch that throttles, fails or hangs for minutes does to a worker.

A producer puts records at a constant rate, and a worker process checkpoints each batch. CloudWatch
behaves in one way from the worker's start to its end. Memory is compared with that after the first
half minute.

python -m benchmarks cloudwatch_outage
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.proc_stat import memory
from benchmarks.report import Result, print_table
from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.metrics import CloudWatchMetrics

STREAM = "records"
REGION = "us-east-1"
SHARDS = 16
PUT_EVERY = 0.05
PUT_RECORDS = 400
SECONDS = 180.0
SETTLE = 30.0
"""Seconds until the worker has all that it needs."""
LOOK_EVERY = 1.0
MB = 2**20

WAYS: dict[str, Fault | None] = {
    "answers": None,
    "throttles": Fault.error("Throttling", "Rate exceeded", status=400),
    "fails": Fault.error("InternalServiceFault", "oops", status=500),
    "hangs": Fault.delay(3_600_000),
}
"""What CloudWatch does with each call of PutMetricData."""


@dataclass(frozen=True)
class Look:
    """A worker at one instant, since its start."""

    at: float
    records: int
    checkpoints: int
    cpu: float
    rss: int
    """Bytes."""
    lag_ms: int


class Counting(RecordProcessor):
    """Checkpoints each batch. Counts the records and the checkpoints of all shards."""

    lock = threading.Lock()
    records = checkpoints = 0

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        with Counting.lock:
            Counting.records += len(batch)
            Counting.checkpoints += 1


def _serve(pipe: Connection) -> None:
    """Serve, and put records while nobody says otherwise."""
    fault: Fault | None = None

    def plan(call: Call) -> Fault | None:
        return fault if call.operation == "PutMetricData" else None

    with LocalServer(dynamodb=True, cloudwatch=True, limits=False, faults=plan) as server:
        kinesis = server.kinesis
        pipe.send(server.endpoint_url)
        while (way := pipe.recv()) is not None:
            fault = WAYS.get(way)
            kinesis.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
            pipe.send(True)
            put = 0
            step = 2**128 // SHARDS
            at = time.monotonic()
            while not pipe.poll(max(0.0, at - time.monotonic())):
                at += PUT_EVERY
                kinesis.call(
                    "PutRecords",
                    StreamName=STREAM,
                    Records=[
                        {"Data": b"x" * 100, "PartitionKey": "k",
                         "ExplicitHashKey": str(n % SHARDS * step)}
                        for n in range(PUT_RECORDS)
                    ],
                )  # fmt: skip
                put += PUT_RECORDS
            pipe.recv()
            kinesis.call("DeleteStream", StreamName=STREAM)
            pipe.send(put)


def _work(pipe: Connection, endpoint: str, application: str, *, publishes: bool) -> None:
    """Run a worker; answer each question by a look; at the end, by the seconds of the shutdown."""
    os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")
    exporters = (CloudWatchMetrics(shard_metrics=True),) if publishes else ()
    worker = Application(
        application,
        STREAM,
        Counting,
        REGION,
        endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(idle_time=0.25, metrics=exporters),
    ).worker()
    worker.start()
    pipe.send(True)
    while pipe.recv():
        lags = [one.millis_behind_latest or 0 for one in worker.status()]
        look = Look(
            at=time.monotonic(),
            records=Counting.records,
            checkpoints=Counting.checkpoints,
            cpu=time.process_time(),
            rss=memory(),
            lag_ms=max(lags, default=0),
        )
        pipe.send(look)
    began = time.monotonic()
    worker.shutdown(30.0)
    pipe.send(time.monotonic() - began)


@contextmanager
def _process(target: Any, *given: Any, **named: Any) -> Iterator[Connection]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=target, args=(theirs, *given), kwargs=named)
    process.start()
    try:
        yield ours
    finally:
        process.join(60)
        process.kill()


def measure(server: Connection, endpoint: str, way: str, *, publishes: bool) -> list[Result]:
    """Let a worker run for `SECONDS`."""
    server.send(way)
    server.recv()
    application = f"outage-{way}-{publishes}"
    looks: list[Look] = []
    with _process(_work, endpoint, application, publishes=publishes) as worker:
        worker.recv()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(LOOK_EVERY)
            worker.send(True)
            looks.append(worker.recv())
        worker.send(False)
        ended = worker.recv()
    server.send(True)
    put = server.recv()
    name = f"CloudWatch {way}" if publishes else "no metrics"
    return _results(name, looks, put, ended)


def _results(name: str, looks: list[Look], put: int, ended: float) -> list[Result]:
    first, last = looks[0], looks[-1]
    settled = next(one for one in looks if one.at - first.at >= SETTLE)
    seconds = last.at - settled.at
    grown = [(one.rss - settled.rss) / MB for one in looks if one.at >= settled.at]
    note = f"{put:,} put, {last.records:,} processed at the last look; ended in {ended:.1f} s"
    return [
        Result(name, (last.records - settled.records) / seconds, "records/s", note=note),
        Result(name, (last.checkpoints - settled.checkpoints) / seconds, "checkpoints/s"),
        Result(name, (last.cpu - settled.cpu) / seconds, "cores"),
        Result(
            name,
            statistics.median(one.lag_ms for one in looks),
            "ms behind, median",
            note=f"at most {max(one.lag_ms for one in looks if one.at >= settled.at)}",
        ),
        Result(name, max(grown), "MB more at most", note=f"of {settled.rss / MB:.0f} MB"),
    ]


def run() -> list[Result]:
    with _process(_serve) as server:
        endpoint = server.recv()
        found = measure(server, endpoint, "answers", publishes=False)
        for way in WAYS:
            found += measure(server, endpoint, way, publishes=True)
        server.send(None)
    return found


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
