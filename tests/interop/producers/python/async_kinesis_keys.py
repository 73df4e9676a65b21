"""async-kinesis: records as they are, with their keys."""

import asyncio
import json
import os
import sys

from kinesis import Producer
from kinesis.processors import StringProcessor


async def main() -> None:
    producer = Producer(
        stream_name=os.environ["STREAM"],
        endpoint_url=os.environ["ENDPOINT"],
        region_name=os.environ["AWS_REGION"],
        processor=StringProcessor(),
    )
    async with producer:
        for line in sys.stdin:
            one = json.loads(line)
            await producer.put(one["data"], partition_key=one["key"])


asyncio.run(main())
