"""Runs an application, written in one of the ways to write one, until it is killed.

Usage: python -m tests.integration.worker.ways_process WAY ENDPOINT STREAM WORKER LOG

It appends a line for each record that it has processed: the time, the record's place, and its data.
It prints a line when it is at the record ``hold``, which takes until its standard input ends, and
one when its worker begins to shut down. ``replay`` prints what a replay has done.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sparkinesis import Application, Checkpointer, RecordBatch, RecordProcessor, UserRecord
from sparkinesis.events import ShutdownBegan
from tests import pace
from tests.local_application import local_application

FAILOVER_TIME = pace.seconds(1.5)
WORK = 0.002
"""Seconds that a record takes."""
HOLD = b"hold"

_log = Path(sys.argv[-1])


def note(record: UserRecord) -> None:
    place = f"{record.shard_id} {record.sequence_number} {record.sub_sequence_number}"
    with _log.open("a", encoding="utf-8") as file:
        file.write(f"{time.monotonic()} {place} {record.data.decode()}\n")


def process(record: UserRecord) -> None:
    time.sleep(WORK)
    if record.data == HOLD:
        print("holding", flush=True)
        sys.stdin.read()
    note(record)


async def process_async(record: UserRecord) -> None:
    await asyncio.sleep(WORK)
    if record.data == HOLD:
        print("holding", flush=True)
        has_ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, has_ended.set)
        await has_ended.wait()
    note(record)


def tell(event: object) -> None:
    if isinstance(event, ShutdownBegan):
        print("shutting down", flush=True)


class Processor(RecordProcessor):
    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        function(batch)
        checkpointer.checkpoint()


class AsyncProcessor(RecordProcessor):
    async def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        await async_function(batch)
        await checkpointer.checkpoint_async()


def function(batch: RecordBatch) -> None:
    for record in batch:
        process(record)


async def async_function(batch: RecordBatch) -> None:
    for record in batch:
        await process_async(record)


def loop(application: Application) -> None:
    with application.batches() as batches:
        for batch in batches:
            function(batch)
            batch.checkpoint()


async def async_loop(application: Application) -> None:
    async with application.batches() as batches:
        async for batch in batches:
            await async_function(batch)
            batch.checkpoint()


PROCESSORS: dict[str, Callable[..., object]] = {
    "class": Processor,
    "function": function,
    "async class": AsyncProcessor,
    "async function": async_function,
    "concurrency": process,
    "async concurrency": process_async,
}


def main(way: str, endpoint: str, stream: str, worker: str) -> None:
    is_concurrent = way.endswith("concurrency")
    application = local_application(
        stream,
        endpoint,
        PROCESSORS.get(way),
        worker_id=worker,
        failover_time=FAILOVER_TIME,
        idle_time=0.25,
        parent_poll_interval=0.2,
        concurrency=32 if is_concurrent else None,
        checkpoint_seconds=0.1 if is_concurrent else None,
        on_event=tell,
    )
    if way == "loop":
        loop(application)
    elif way == "async loop":
        asyncio.run(async_loop(application))
    elif way == "async class":
        asyncio.run(application.run_async())
    elif way == "replay":
        done = application.replay("trim_horizon", processor=Processor)
        print(done.records, done.is_complete, flush=True)
    else:
        application.run()


if __name__ == "__main__":
    main(*sys.argv[1:-1])
