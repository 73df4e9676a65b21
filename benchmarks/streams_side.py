"""A worker of an application of many streams; tells its shards and the records it has, as JSON.

python -m benchmarks.streams_side ENDPOINT DYNAMODB_ENDPOINT APPLICATION STREAMS RETRIEVAL
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time

from sparkinesis import (
    Application,
    Checkpointer,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.worker.lifecycle.signals import graceful_on_signals

REGION = "us-east-1"
_telling = threading.Lock()


def tell(**what: object) -> None:
    with _telling:
        print(json.dumps(what), flush=True)


class Telling(RecordProcessor):
    """Tells each record. Checkpoints none: the local DynamoDB is slow, and not to be measured."""

    stream = ""

    def initialize(self, shard: ProcessorShard) -> None:
        self.stream = shard.stream

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        del checkpointer
        for record in batch.records:
            tell(stream=self.stream, data=record.data.decode())


def name_of(number: int) -> str:
    return f"stream-{number:04}"


def main(
    endpoint: str, dynamodb_endpoint: str, application: str, streams: int, retrieval: str
) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    app = Application(
        application,
        processor=Telling,
        region=REGION,
        endpoint=endpoint,
        dynamodb_endpoint=dynamodb_endpoint,
        initial_position="trim_horizon",
        streams=[name_of(number) for number in range(streams)],
        options=WorkerOptions(retrieval="efo" if retrieval == "efo" else "polling"),
    )
    worker = app.worker()
    with graceful_on_signals(worker.shutdown, worker.log_place):
        worker.start()
        tell(started=time.monotonic())
        while not worker.wait(1.0):
            tell(shards=len(worker.status()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
