#!/usr/bin/env bash
# amazon-kinesis-utils never sends the batches behind one that fails, and does not name their records.
#
# amazon-kinesis-utils 0.1.8, seen on 2026-11-29: put_records_batch returns "records failed to put after all
# retries". When the first of two batches has one record left after its retries, the function returns that record;
# the second batch was never sent, and none of its records is in the list.
# Hurt: whoever puts the returned records again. The others are lost.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check amazon-kinesis-utils==0.1.8 aws-kinesis-agg==1.2.3 protobuf==6.33.0 boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
import logging
from types import SimpleNamespace

import boto3
from amazon_kinesis_utils.kinesis import put_records_batch

logging.disable(logging.CRITICAL)
kinesis = boto3.client(
    "kinesis", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
)
sent = []


def remember(params, **_):
    sent.append([entry["Data"].decode() for entry in params["Records"]])


def answer(**_):  # in place of the network: the first record of each call is throttled
    put = {"SequenceNumber": "1", "ShardId": "shardId-000000000000"}
    refused = {
        "ErrorCode": "ProvisionedThroughputExceededException",
        "ErrorMessage": "Rate exceeded",
    }
    records = [refused, *[put] * (len(sent[-1]) - 1)]
    return SimpleNamespace(status_code=200), {"FailedRecordCount": 1, "Records": records}


kinesis.meta.events.register("before-parameter-build.kinesis.PutRecords", remember)
kinesis.meta.events.register("before-call.kinesis.PutRecords", answer)
failed = put_records_batch(
    kinesis, "s", ["one", "two", "three", "four"], max_retries=0, max_batch_size=2
)
print("sent:", sent)
print("returned as failed:", [entry["Data"].decode() for entry in failed])
assert sent == [["one", "two"]]
assert [entry["Data"] for entry in failed] == [b"one"]
PY
