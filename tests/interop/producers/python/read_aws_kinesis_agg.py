"""aws-kinesis-agg's reader: the user records of stored ones."""

import base64
import json
import sys

from aws_kinesis_agg.deaggregator import iter_deaggregate_records

for line in sys.stdin:
    given = json.loads(line)
    record = {**given, "Data": base64.b64decode(given["Data"]), "ApproximateArrivalTimestamp": 0}
    for user in iter_deaggregate_records([record], data_format="Boto3"):
        one = user["kinesis"]
        data = one["data"]  # of a plain record, as boto3 returns it
        text = base64.b64encode(data) if data == record["Data"] else data
        found = {"key": one["partitionKey"], "hash_key": one.get("explicitHashKey")}
        print(json.dumps({**found, "data": text.decode()}))
