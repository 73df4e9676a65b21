"""aws-kinesis-agg: aggregates of up to 1 MB, one PutRecord for each."""

import json
import os
import sys
from typing import Any

import boto3
from aws_kinesis_agg.aggregator import RecordAggregator

kinesis = boto3.client("kinesis", endpoint_url=os.environ["ENDPOINT"])


def put(record: Any) -> None:
    key, hash_key, data = record.get_contents()
    hashed = {} if hash_key is None else {"ExplicitHashKey": hash_key}
    kinesis.put_record(StreamName=os.environ["STREAM"], PartitionKey=key, Data=data, **hashed)


aggregator = RecordAggregator()
aggregator.on_record_complete(put, execute_on_new_thread=False)
for line in sys.stdin:
    one = json.loads(line)
    aggregator.add_user_record(one["key"], one["data"].encode())
put(aggregator.clear_and_get())
