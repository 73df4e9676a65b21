"""boto3: PutRecords by 100; the answer is not read."""

import json
import os
import sys

import boto3

kinesis = boto3.client("kinesis", endpoint_url=os.environ["ENDPOINT"])
given = [json.loads(line) for line in sys.stdin]
records = [{"Data": one["data"].encode(), "PartitionKey": one["key"]} for one in given]
for first in range(0, len(records), 100):
    kinesis.put_records(StreamName=os.environ["STREAM"], Records=records[first : first + 100])
