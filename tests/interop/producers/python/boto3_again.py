"""boto3: PutRecords by 100; entries that were refused are put again."""

import json
import os
import sys

import boto3

kinesis = boto3.client("kinesis", endpoint_url=os.environ["ENDPOINT"])
given = [json.loads(line) for line in sys.stdin]
records = [{"Data": one["data"].encode(), "PartitionKey": one["key"]} for one in given]
for first in range(0, len(records), 100):
    rest = records[first : first + 100]
    while rest:
        answer = kinesis.put_records(StreamName=os.environ["STREAM"], Records=rest)["Records"]
        rest = [one for one, of in zip(rest, answer, strict=True) if "ErrorCode" in of]
