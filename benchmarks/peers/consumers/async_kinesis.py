"""async-kinesis: an iterator over a stream on asyncio, with checkpoints in DynamoDB.

It gives one record at a time: those of a few milliseconds are counted together.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

from kinesis import Consumer
from kinesis.aggregators import KPLAggregator, SimpleAggregator
from kinesis.dynamodb import DynamoDBCheckPointer
from kinesis.processors import Processor

from benchmarks.peers.consumers.task import CHECKPOINT_SECONDS, REGION, Tally, Task

COUNTED_SECONDS = 0.005
READS_PER_SECOND = 5
"""Of each shard, as the service allows; the default is 1."""


class Plain(Processor, SimpleAggregator):  # type: ignore[misc]
    def deserialize(self, data: bytes) -> bytes:
        return data


class Aggregated(Processor, KPLAggregator):  # type: ignore[misc]
    def deserialize(self, data: bytes) -> bytes:
        return data


class Counter:
    """Tells the tally of the records that have come since the first one that it was not told of."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._found: list[bytes] = []
        self._at = 0.0

    def add(self, data: bytes) -> None:
        if not self._found:
            self._at = time.monotonic()
            asyncio.get_running_loop().call_later(COUNTED_SECONDS, self._tell)
        self._found.append(data)

    def _tell(self) -> None:
        self._tally.add(self._found, self._at)
        self._found = []


async def read(task: Task) -> None:
    counter = Counter(Tally(task))
    checkpoints = DynamoDBCheckPointer(
        task.application,
        table_name=task.application,
        id=task.worker,
        endpoint_url=task.endpoint,
        region_name=REGION,
    )
    options = {} if task.idle_seconds is None else {"sleep_time_no_records": task.idle_seconds}
    if task.is_backlog:
        options["shard_fetch_rate"] = READS_PER_SECOND
    async with Consumer(
        task.stream,
        endpoint_url=task.endpoint,
        region_name=REGION,
        iterator_type="LATEST" if task.from_latest else "TRIM_HORIZON",
        checkpointer=checkpoints,
        checkpoint_interval=CHECKPOINT_SECONDS,
        processor=Aggregated() if task.aggregated else Plain(),
        **options,
    ) as consumer:
        while True:  # the iterator ends where no record has come for two seconds
            async for data in consumer:
                counter.add(data)


async def main() -> None:
    reading = asyncio.ensure_future(read(Task.from_arguments()))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await reading


if __name__ == "__main__":
    asyncio.run(main())
