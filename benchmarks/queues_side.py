"""One side of the comparison of receivers of a queue: this library, or a loop over boto3.

    python -m benchmarks.queues_side ENDPOINT ARN SIDE CONCURRENCY RECORDS

Prints, as JSON, the seconds and the CPU seconds from its first record to its last acknowledgement.
With 0 records it stays idle for as many seconds as CONCURRENCY says, and prints their CPU seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

REGION = "us-east-1"
SIDES = ("ours", "ours async", "boto3")


class Progress:
    """Counts records, and reads the clocks at the first and at the last."""

    def __init__(self, expected: int) -> None:
        self.done = threading.Event()
        self._lock = threading.Lock()
        self._left = expected
        self._began: tuple[float, float] | None = None
        self.told: dict[str, float] = {}

    def handle(self, _: object) -> None:
        with self._lock:
            self._began = self._began or (time.monotonic(), time.process_time())
            self._left -= 1
            if self._left == 0:
                self.done.set()

    def end(self) -> None:
        assert self._began is not None
        seconds, cpu = self._began
        self.told = {"seconds": time.monotonic() - seconds, "cpu": time.process_time() - cpu}


def ours(
    endpoint: str, arn: str, handler: Callable[[Any], Any], concurrency: int, wait_time: int = 1
) -> Any:
    from sparkinesis.queue import QueueApplication, QueueOptions  # noqa: PLC0415 - one side each

    options = QueueOptions(wait_time=wait_time)
    application = QueueApplication(
        arn, handler, endpoint=endpoint, concurrency=concurrency, options=options
    )
    return application.worker()


def boto3_loop(
    endpoint: str, arn: str, handle: Callable[[Any], Any], concurrency: int, done: threading.Event
) -> None:
    """The simplest loop that is correct: receive ten, handle them in a pool, acknowledge ten.

    A receiver for each ten handlers, since one has ten records at most.
    """
    import boto3  # noqa: PLC0415 - one side each
    from botocore.config import Config  # noqa: PLC0415

    client = boto3.client(
        "kinesis",
        region_name=REGION,
        endpoint_url=endpoint,
        config=Config(max_pool_connections=64, retries={"total_max_attempts": 1}),
    )

    def receive() -> None:
        while not done.is_set():
            answer = client.receive_queue_records(
                QueueARN=arn, Limit=min(10, concurrency), WaitTimeSeconds=1
            )
            records = answer["QueueRecords"]
            list(pool.map(handle, records))
            if records:
                entries = [{"ReceiptHandle": one["ReceiptHandle"]} for one in records]
                answer = client.acknowledge_queue_records(QueueARN=arn, Entries=entries)
                assert not answer.get("Failed")

    receivers = max(1, round(concurrency / 10))
    with ThreadPoolExecutor(concurrency) as pool, ThreadPoolExecutor(receivers) as loops:
        for one in [loops.submit(receive) for _ in range(receivers)]:
            one.result()


def main(endpoint: str, arn: str, side: str, concurrency: int, records: int) -> None:
    progress = Progress(records)

    async def handle(record: object) -> None:
        progress.handle(record)

    if records == 0:
        worker = ours(endpoint, arn, progress.handle, 1, wait_time=9).start()
        time.sleep(2.0)
        before = time.process_time()
        time.sleep(concurrency)
        progress.told = {"cpu": time.process_time() - before}
        worker.shutdown()
    elif side == "boto3":
        boto3_loop(endpoint, arn, progress.handle, concurrency, progress.done)
        progress.end()
    else:
        handler = handle if side == "ours async" else progress.handle
        worker = ours(endpoint, arn, handler, concurrency).start()
        progress.done.wait()
        while worker.in_hand:
            time.sleep(0.001)
        progress.end()
        worker.shutdown()
    print(json.dumps(progress.told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
