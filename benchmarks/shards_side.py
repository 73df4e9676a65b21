"""A worker with many shards; tells how late each record came, in milliseconds, each second.

python -m benchmarks.shards_side ENDPOINT STREAM[,STREAM...] APPLICATION polling|efo [SECONDS]

SECONDS: the time between two checkpoints of a shard. By default, there are none.
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


class Telling(RecordProcessor):
    """Notes how late records are."""

    late: list[float] = []  # noqa: RUF012 - of all shards; `list.extend` is atomic

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        del checkpointer
        now = time.monotonic()
        self.late.extend(1000 * (now - INSTANT.unpack(one.data)[0]) for one in batch.records)


def tell() -> None:
    """Print the milliseconds of each record once a second, in one line."""
    while True:
        time.sleep(1.0)
        if late := Telling.late:
            Telling.late = []
            print(*(f"{each:.1f}" for each in late), flush=True)


def main(endpoint: str, streams: str, application: str, retrieval: str, seconds: str = "") -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    allow_many_files()
    threading.Thread(target=tell, daemon=True).start()
    names = streams.split(",")
    Application(
        application,
        names[0] if len(names) == 1 else None,
        Telling,
        streams=names if len(names) > 1 else None,
        region=REGION,
        endpoint=endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(
            retrieval="efo" if retrieval == "efo" else "polling",
            checkpoint_seconds=float(seconds) if seconds else None,
        ),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
