"""Makes the picture of the docs: `python -m tests.page.picture docs/page.png`.

Two workers read a stream of four shards, of which some were split and merged in the last hour; one
record processor fails.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.stream.address import CredentialSource
from sparkinesis.ui.serving import serve_table
from sparkinesis.ui.watcher import WorkerUrls
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import RecordProcessor
from tests.page.browser import Browser
from tests.repeating import repeating
from tests.streams import merge_neighbours, split

SECONDS = 60
"""How long the page watches before the picture is taken."""


class Clock:
    """The server's clock: it begins in the past, and is moved to the present."""

    def __init__(self, minutes_ago: int) -> None:
        self._behind_ms = minutes_ago * 60_000

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 - self._behind_ms

    def go_on(self, minutes: int) -> None:
        self._behind_ms -= minutes * 60_000


class Delays(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        for record in batch.records:
            if record.data.startswith(b"cancelled") and random.random() < 0.02:
                raise ValueError(f"flight {record.partition_key} has no delay: it was cancelled")
        checkpointer.checkpoint()


def reshard(kinesis: Any, clock: Clock) -> None:
    """Split and merge shards over an hour, in a moment."""
    clock.go_on(5)
    for index, minutes in ((0, 15), (1, 10), (4, 10)):
        split(kinesis, "flights", index=index)
        clock.go_on(minutes)
    merge_neighbours(kinesis, "flights", index=0)
    clock.go_on(20)


def put(kinesis: Any, rng: random.Random) -> None:
    records = [
        {
            "Data": rng.choice((b"landed", b"landed", b"cancelled")) + b" " * 800,
            "PartitionKey": f"UA {rng.randrange(2000)}",
        }
        for _ in range(rng.randrange(40, 90))
    ]
    kinesis.put_records(StreamName="flights", Records=records)


def main() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    logging.disable(logging.ERROR)
    clock = Clock(60)
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer(port=0, dynamodb=True, clock=clock))
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="flights", ShardCount=4)
        reshard(kinesis, clock)
        workers = []
        for name in ("host-1", "host-2"):
            options = WorkerOptions(http="127.0.0.1:0", idle_time=0.5)
            application = Application(
                "delays", "flights", Delays, region="us-east-1", endpoint=server.endpoint_url,
                initial_position="trim_horizon", worker_id=name, options=options,
            )  # fmt: skip
            workers.append(application.worker().start())
            stack.callback(workers[-1].shutdown, 10)
        stack.enter_context(repeating(partial(put, kinesis, random.Random(3)), 0.3))
        streams = ChosenStreams.of(
            ("flights",), "us-east-1", server.endpoint_url, CredentialSource()
        )
        report = WorkerUrls([str(worker.http_url) for worker in workers]).ask
        table = streams.table("delays", None)
        page = stack.enter_context(serve_table(table, streams, report, port=0, interval=1.0))
        browser = Browser(1200, 1560)
        stack.callback(browser.close)
        browser.open(page.url)
        time.sleep(SECONDS)
        browser.save(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
