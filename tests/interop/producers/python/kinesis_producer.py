"""kinesis-producer: records without keys, joined by a delimiter, with its README's settings."""

import json
import os
import sys

from kinesis_producer import KinesisProducer

os.environ["AWS_ENDPOINT_URL"] = os.environ["ENDPOINT"]
config = {
    "aws_region": os.environ["AWS_REGION"],
    "buffer_size_limit": 100_000,
    "buffer_time_limit": 0.2,
    "kinesis_concurrency": 1,
    "kinesis_max_retries": 10,
    "record_delimiter": b"\n",
    "stream_name": os.environ["STREAM"],
}
producer = KinesisProducer(config=config)
for line in sys.stdin:
    producer.send(json.loads(line)["data"].encode())
producer.close()
producer.join()
