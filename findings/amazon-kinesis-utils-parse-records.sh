#!/usr/bin/env bash
# amazon-kinesis-utils drops JSON that is no object, and each object with a field "messageType".
#
# amazon-kinesis-utils 0.1.8, seen on 2026-11-29: parse_records, which opens aggregates, gzip and the envelope of
# CloudWatch Logs for a Lambda function, yields nothing for a record whose data is a JSON array, number, string or
# null, and nothing for an application's own object that has a field "messageType". The record counts as
# processed; a line in the log is all that remains. Text that is no JSON passes.
# Hurt: whoever reads such events, and finds fewer than were put.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check amazon-kinesis-utils==0.1.8 aws-kinesis-agg==1.2.3 protobuf==6.33.0 boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
import base64
import logging

from amazon_kinesis_utils.kinesis import parse_records

logging.disable(logging.CRITICAL)


def parsed(data):
    kinesis = {
        "data": base64.b64encode(data).decode(),
        "partitionKey": "key",
        "sequenceNumber": "1",
        "kinesisSchemaVersion": "1.0",
        "approximateArrivalTimestamp": 1.0,
    }
    return list(parse_records([{"eventSource": "aws:kinesis", "eventID": "1", "kinesis": kinesis}]))


KEPT = [b'{"id": 7}', b"a line of text"]
DROPPED = [b"[1, 2]", b"42", b'"a text"', b"null", b'{"messageType": "order", "id": 7}']
for data in KEPT + DROPPED:
    print(f"{data.decode():34} -> {parsed(data)}")
assert [parsed(data) for data in KEPT] == [[data.decode()] for data in KEPT]
assert [parsed(data) for data in DROPPED] == [[] for _ in DROPPED]
PY
