"""A worker with metrics: ``... tests.prometheus.worker ENDPOINT FOLDER WORKER_ID``.

Prints the port that Prometheus scrapes. SIGTERM ends the worker gracefully; the process lives on
for a last scrape, until its standard input is closed.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from pathlib import Path

import prometheus_client

from sparkinesis import Application, WorkerOptions
from sparkinesis.metrics import PrometheusMetrics
from tests import pace
from tests.prometheus.processor import Processor, journal_of
from tests.prometheus.setting import APPLICATION, BATCH, REGION, STREAM


def main(endpoint: str, folder: Path, worker_id: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    server, _ = prometheus_client.start_http_server(0, "127.0.0.1")
    print(server.server_port, flush=True)
    Application(
        APPLICATION,
        STREAM,
        functools.partial(Processor, folder),
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
    journal_of(folder, worker_id).write({"ended": time.time()})
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
