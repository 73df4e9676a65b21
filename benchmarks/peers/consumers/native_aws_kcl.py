"""native-aws-kcl-py: a KCL in Python on asyncio. Its scheduler polls; it has no fan-out."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from native_aws_kcl_py import (
    AwsConfig,
    InitialPositionInStream,
    InitialPositionInStreamExtended,
    KinesisConsumerConfig,
    RetrievalConfig,
    Scheduler,
    ShardRecordProcessor,
    ShardRecordProcessorFactory,
)

from benchmarks.peers.consumers.task import REGION, Pace, Tally, Task


class Counting(ShardRecordProcessor):  # type: ignore[misc]
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pace = Pace()

    async def initialize(self, initialization_input: Any) -> None:
        pass

    async def process_records(self, process_records_input: Any) -> None:
        self._tally.add([record.data for record in process_records_input.records])
        if self._pace.is_due():
            await process_records_input.checkpointer.checkpoint()

    async def lease_lost(self, lease_lost_input: Any) -> None:
        pass

    async def shard_ended(self, shard_ended_input: Any) -> None:
        await shard_ended_input.checkpointer.checkpoint()

    async def shutdown_requested(self, shutdown_requested_input: Any) -> None:
        pass


class Factory(ShardRecordProcessorFactory):  # type: ignore[misc]
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def create_processor(self) -> Counting:
        return Counting(self._tally)


async def run(task: Task) -> None:
    kind = InitialPositionInStream.LATEST
    if not task.from_latest:
        kind = InitialPositionInStream.TRIM_HORIZON
    retrieval = RetrievalConfig(stream_name=task.stream)
    if task.idle_seconds is not None:
        retrieval.idle_time_between_reads_millis = int(task.idle_seconds * 1000)
    scheduler = Scheduler(
        KinesisConsumerConfig(
            aws=AwsConfig(
                region=REGION, kinesis_endpoint=task.endpoint, dynamodb_endpoint=task.endpoint
            ),
            application_name=task.application,
            stream_name=task.stream,
            record_processor_factory=Factory(Tally(task)),
            worker_identifier=task.worker,
            initial_position_in_stream=InitialPositionInStreamExtended(kind),
            retrieval=retrieval,
        )
    )
    loop = asyncio.get_running_loop()
    endings = []
    loop.add_signal_handler(
        signal.SIGTERM, lambda: endings.append(asyncio.ensure_future(scheduler.shutdown()))
    )
    await scheduler.run()
    await asyncio.gather(*endings)


if __name__ == "__main__":
    asyncio.run(run(Task.from_arguments()))
