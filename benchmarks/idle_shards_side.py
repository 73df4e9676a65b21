"""A worker with many idle shards; tells how late each record came, in milliseconds, one a line.

python -m benchmarks.idle_shards_side ENDPOINT STREAM APPLICATION polling|efo
"""

from __future__ import annotations

import logging
import struct
import sys
import threading
import time

from benchmarks.many_files import allow_many_files
from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, WorkerOptions

REGION = "us-east-1"
INSTANT = struct.Struct("d")
"""A record's data: the instant of its put, by the machine's monotonic clock."""
_telling = threading.Lock()


class Telling(RecordProcessor):
    """Tells how late records are. Makes no checkpoints: the stream has no records to speak of."""

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        del checkpointer
        now = time.monotonic()
        for record in batch.records:
            (put_at,) = INSTANT.unpack(record.data)
            with _telling:
                print(1000 * (now - put_at), flush=True)


def main(endpoint: str, stream: str, application: str, retrieval: str) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    allow_many_files()
    Application(
        application,
        stream,
        Telling,
        REGION,
        endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(retrieval="efo" if retrieval == "efo" else "polling"),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
