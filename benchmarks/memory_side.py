"""The worker whose memory is measured; tells its peak as JSON, and ends.

python -m benchmarks.memory_side ENDPOINT STREAM SHARDS
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time

from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor

QUIET = 10.0
"""Seconds without a new peak, after which none is to come."""
PATIENCE = 300.0
REGION = "us-east-1"


class Standing(RecordProcessor):
    """Does not return from its first call that has records."""

    busy = threading.Semaphore(0)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        del checkpointer
        if batch.records:
            self.busy.release()
            threading.Event().wait()


def peak() -> int:
    """The most resident memory of this process so far, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def main(endpoint: str, stream: str, shards: int) -> None:
    application = Application(
        f"memory-{stream}",
        stream,
        Standing,
        REGION,
        endpoint,
        initial_position="trim_horizon",
    )
    worker = application.worker().start()
    until = time.monotonic() + PATIENCE
    for _ in range(shards):
        if not Standing.busy.acquire(timeout=max(0.0, until - time.monotonic())):
            print(worker.failures(), file=sys.stderr)
            os._exit(1)
    most, since = peak(), time.monotonic()
    while time.monotonic() < since + QUIET:
        time.sleep(0.5)
        if (now := peak()) > most:
            most, since = now, time.monotonic()
    print(json.dumps({"peak": most}), flush=True)
    os._exit(0)  # the processors would not return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
