"""What a scrape costs: series, bytes and CPU time, of a worker that reads 1,000 shards.

A real worker holds all shards of a stream of the local server, which is a process of its own; the
answers to scrapes are made when each shard has had records.

python -m benchmarks scrape
"""

from __future__ import annotations

import gzip
import logging
import time
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from benchmarks.many_files import allow_many_files
from benchmarks.report import Result, medians, print_table
from benchmarks.shards_server import Server, serving
from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions
from sparkinesis.metrics import PrometheusMetrics

SHARDS = (10, 1000)
LONGEST = 300.0
FORMATS = {
    "text": "text/plain",
    "OpenMetrics": "application/openmetrics-text; version=1.0.0",
}


class Ignoring(RecordProcessor):
    """Makes no checkpoints: a thousand of them at once take the local DynamoDB long."""

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        del batch, checkpointer


def measure(server: Server, shards: int) -> list[Result]:
    stream = f"scraped-{shards}"
    server.create(stream, shards)
    server.put(stream, shards, 3 * shards, 0.0, seed=1)
    registry = CollectorRegistry()
    worker = Application(
        stream,
        stream,
        Ignoring,
        "us-east-1",
        server.endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(metrics=(PrometheusMetrics(registry),), failover_time=LONGEST),
    ).worker()
    worker.start()
    try:
        _wait_until_all_are_read(registry, shards)
        found = []
        for name, accept in FORMATS.items():
            encode, _ = choose_encoder(accept)
            body = encode(registry)
            lines = [line for line in body.splitlines() if not line.startswith(b"#")]
            (seconds,) = medians(partial(encode, registry), clock=time.thread_time)
            of = f"{shards:,} shards, {name}"
            found += [
                Result(f"series, {of}", len(lines), "series"),
                Result(f"bytes, {of}", len(body), "B"),
                Result(f"the same, by gzip, {of}", len(gzip.compress(body)), "B"),
                Result(f"CPU time, {of}", 1000 * seconds, "ms"),
            ]
        return found
    finally:
        logging.getLogger("sparkinesis").setLevel(logging.ERROR)
        worker.shutdown(0)


def _wait_until_all_are_read(registry: CollectorRegistry, shards: int) -> None:
    limit = time.monotonic() + LONGEST
    while True:
        lags = [
            sample
            for family in registry.collect()
            if family.name == "sparkinesis_lag_seconds"
            for sample in family.samples
        ]
        if len(lags) == shards:
            return
        if time.monotonic() > limit:
            raise RuntimeError(f"{len(lags)} of {shards} shards are read after {LONGEST:g} s")
        time.sleep(1)


def run() -> list[Result]:
    allow_many_files()
    with serving() as server:
        return [result for shards in SHARDS for result in measure(server, shards)]


if __name__ == "__main__":
    print_table("scrape", run())
