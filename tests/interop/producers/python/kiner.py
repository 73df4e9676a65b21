"""kiner: put_record with a key, in batches of 100."""

import json
import os
import sys

import boto3
from kiner.producer import KinesisProducer

client = boto3.client("kinesis", endpoint_url=os.environ["ENDPOINT"])
producer = KinesisProducer(os.environ["STREAM"], 100, batch_time=1, kinesis_client=client)
for line in sys.stdin:
    one = json.loads(line)
    producer.put_record(one["data"], partition_key=one["key"])
producer.close()
