#!/usr/bin/env bash
# kiner's put_records(records, partition_key) gives each record a random key in place of the one that it is called with.
#
# kiner 0.8.0, seen on 2026-11-29: put_records hands its partition_key on as the second argument of put_record, which is
# metadata. put_record with partition_key=... keeps the key.
# Hurt: consumers that group by key, and the order of a key: its records go to all shards.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check kiner==0.8.0 boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
from kiner.producer import KinesisProducer

keys = []


class Service:  # in place of the network
    def put_records(self, StreamName, Records):
        keys.extend(one["PartitionKey"] for one in Records)
        return {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1"} for _ in Records]}


producer = KinesisProducer("s", kinesis_client=Service(), batch_time=0.1)
producer.put_records(["one", "two"], "key")
producer.put_record("three", partition_key="key")
producer.close()
print("keys of the records:", keys)
assert keys[2] == "key" and "key" not in keys[:2] and keys[0] != keys[1]
PY
