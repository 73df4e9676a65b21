"""The same application by async-kinesis; tells what it does a second, as JSON.

python -m benchmarks.ways_peer_side ENDPOINT STREAM APPLICATION WAY WAIT SECONDS
"""

from __future__ import annotations

import asyncio
import random
import sys

from kinesis import Consumer
from kinesis.dynamodb import DynamoDBCheckPointer

from benchmarks.peers.consumers.async_kinesis import READS_PER_SECOND, Plain
from benchmarks.peers.consumers.task import CHECKPOINT_SECONDS, REGION
from benchmarks.ways_meter import Meter

AT_ONCE = {"in turn": 1, "gathered": 32}


async def read(arguments: list[str]) -> None:
    endpoint, stream, name, way, wait, seconds = arguments
    meter = Meter(float(seconds))

    async def one(data: bytes) -> None:
        del data
        await asyncio.sleep(0.01 if wait == "same" else random.expovariate(100))
        meter.add()

    async with Consumer(
        stream,
        endpoint_url=endpoint,
        region_name=REGION,
        checkpointer=DynamoDBCheckPointer(
            name, table_name=name, endpoint_url=endpoint, region_name=REGION
        ),
        checkpoint_interval=CHECKPOINT_SECONDS,
        processor=Plain(),
        shard_fetch_rate=READS_PER_SECOND,
    ) as consumer:
        found: list[bytes] = []
        async for data in consumer:
            found.append(data)
            if len(found) == AT_ONCE[way]:
                await asyncio.gather(*map(one, found))
                found = []


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1:]))
