"""A worker with metrics: ``... tests.prometheus.worker ENDPOINT FOLDER WORKER_ID``.

Prints the port that Prometheus scrapes. SIGTERM ends the worker gracefully; the process lives on
for a last scrape, until its standard input is closed.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import time
from pathlib import Path

import prometheus_client

from sparkinesis import (
    Application,
    Checkpointer,
    PrometheusMetrics,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from tests import pace
from tests.prometheus.journal import Writer
from tests.prometheus.setting import APPLICATION, BATCH, REGION, SLOW, SLOW_SECONDS, STREAM

FAIL_EVERY = 40
CHECKPOINT_EVERY = 7
"""Batches; so that a worker that is killed leaves something to be processed again."""


class Processor(RecordProcessor):
    def __init__(self, folder: Path, journal: Writer) -> None:
        self._slow = folder / SLOW
        self._journal = journal
        self._calls = itertools.count(1)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        call = next(self._calls)
        if self._slow.exists():
            time.sleep(SLOW_SECONDS)
        if call % FAIL_EVERY == 0:
            self._journal.write({"failed": call})
            raise RuntimeError("a failure on purpose")
        if call % CHECKPOINT_EVERY == 0:
            checkpointer.checkpoint()
        records = batch.records
        arrived = records[-1].approximate_arrival_timestamp
        assert batch.fetched_at is not None
        assert arrived is not None
        behind = (batch.fetched_at - arrived).total_seconds()
        self._journal.write(
            {
                "numbers": [int(record.data) for record in records],
                "bytes": sum(len(record.data) for record in records),
                "behind": behind,
            }
        )

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def main(endpoint: str, folder: Path, worker_id: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    journal = Writer(folder / f"{worker_id}.jsonl")
    server, _ = prometheus_client.start_http_server(0, "127.0.0.1")
    print(server.server_port, flush=True)
    Application(
        APPLICATION,
        STREAM,
        functools.partial(Processor, folder, journal),
        region=REGION,
        endpoint=endpoint,
        initial_position="trim_horizon",
        worker_id=worker_id,
        options=WorkerOptions(
            metrics=(PrometheusMetrics(),),
            failover_time=pace.seconds(3),
            handoff_timeout=pace.seconds(3),
            parent_poll_interval=0.5,
            idle_time=0.25,
            max_records=BATCH,
            max_pages_ahead=1,
        ),
    ).run()
    journal.write({"ended": time.time()})
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
