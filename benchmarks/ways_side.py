"""An application that is written in one way; tells what it does a second, as JSON.

python -m benchmarks.ways_side ENDPOINT STREAM APPLICATION WAY WAIT SECONDS
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.peers.consumers.task import CHECKPOINT_SECONDS, REGION
from benchmarks.ways_meter import Meter
from sparkinesis import (
    Application,
    Checkpointer,
    RecordBatch,
    RecordProcessor,
    UserRecord,
    WorkerOptions,
)

AT_ONCE = 32
PAGE = 100
"""Records of a batch of the ways that do nothing."""
WAITS: dict[str, Callable[[], float]] = {
    "same": lambda: 0.01,
    "differs": lambda: random.expovariate(100),
}
"""The seconds that a record waits: 10 ms each, or 10 ms on average."""


def waiting(way: str, wait: Callable[[], float], meter: Meter) -> Callable[[Any], object]:
    """Return a function that waits for each record."""

    def one(record: UserRecord) -> None:
        del record
        time.sleep(wait())
        meter.add()

    async def one_async(record: UserRecord) -> None:
        del record
        await asyncio.sleep(wait())
        meter.add()

    def in_turn(batch: RecordBatch) -> None:
        for record in batch:
            one(record)

    async def gathered(batch: RecordBatch) -> None:
        for start in range(0, len(batch), AT_ONCE):
            await asyncio.gather(*map(one_async, batch[start : start + AT_ONCE]))

    ways: dict[str, Callable[[Any], object]] = {
        "in turn": in_turn,
        "threads": one,
        "tasks": one_async,
        "gathered": gathered,
    }
    return ways[way]


def idle(way: str, meter: Meter) -> Callable[..., object]:
    """Return a function or a class that counts, and does nothing else."""

    class Plain(RecordProcessor):
        def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            del checkpointer
            meter.add(len(batch))

    class Async(RecordProcessor):
        async def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            del checkpointer
            meter.add(len(batch))

    def function(batch: RecordBatch) -> None:
        meter.add(len(batch))

    async def coroutine(batch: RecordBatch) -> None:
        meter.add(len(batch))

    def each(batch: RecordBatch) -> None:
        for _ in batch:
            meter.add()

    def one(record: UserRecord) -> None:
        del record
        meter.add()

    async def one_async(record: UserRecord) -> None:
        one(record)

    ways: dict[str, Callable[..., object]] = {
        "class": Plain,
        "async class": Async,
        "function": function,
        "coroutine": coroutine,
        "each record": each,
        "no-op threads": one,
        "no-op tasks": one_async,
    }
    return ways[way]


def main(arguments: list[str]) -> None:
    endpoint, stream, name, way, wait, seconds = arguments
    meter = Meter(float(seconds))
    is_loop = way in {"batches", "records"}
    processor = None
    if not is_loop:
        processor = waiting(way, WAITS[wait], meter) if wait else idle(way, meter)
    application = Application(
        name,
        stream,
        processor,
        REGION,
        endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(
            concurrency=AT_ONCE if way.endswith(("threads", "tasks")) else None,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            max_records=10_000 if wait else PAGE,
            idle_time=0.25,
            shard_calls_per_second="unlimited",
            shard_bytes_per_second="unlimited",
        ),
    )
    if way == "batches":
        with application.batches() as batches:
            for batch in batches:
                meter.add(len(batch))
    elif way == "records":
        with application.records() as records:
            for _ in records:
                meter.add()
    else:
        application.run()


if __name__ == "__main__":
    main(sys.argv[1:])
