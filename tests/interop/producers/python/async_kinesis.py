"""async-kinesis: a producer with the KPL's format, which takes no keys."""

import asyncio
import json
import os
import sys

from kinesis import Producer
from kinesis.aggregators import KPLAggregator
from kinesis.processors import Processor, StringSerializer


class Packed(Processor, KPLAggregator, StringSerializer):  # type: ignore[misc]
    pass


async def main() -> None:
    producer = Producer(
        stream_name=os.environ["STREAM"],
        endpoint_url=os.environ["ENDPOINT"],
        region_name=os.environ["AWS_REGION"],
        processor=Packed(),
    )
    async with producer:
        for line in sys.stdin:
            await producer.put(json.loads(line)["data"])


asyncio.run(main())
