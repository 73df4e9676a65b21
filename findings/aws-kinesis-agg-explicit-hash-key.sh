#!/usr/bin/env bash
# aws-kinesis-agg's readers, on PyPI and on npm, give a record that has no explicit hash key that of another record.
#
# aws-kinesis-agg 1.2.3 (PyPI) and 4.2.8 (npm), seen on 2026-11-29: an aggregate holds three user records, of which the
# second one has an explicit hash key. Both readers return this key for all three: a missing index is read as 0, which
# is the first key of the aggregate's table.
# Hurt: consumers that place or filter records by explicit hash key.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check aws-kinesis-agg==1.2.3 protobuf==6.33.0 six==1.17.0
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts aws-kinesis-agg@4.2.8
"$work/venv/bin/python" - <<'PY'
import base64

from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import deaggregate_records

aggregator = RecordAggregator()
aggregator.add_user_record("one", b"1")
aggregator.add_user_record("two", b"2", explicit_hash_key="12345")
aggregator.add_user_record("three", b"3")
packed = aggregator.clear_and_get()
indices = [
    record.explicit_hash_key_index if record.HasField("explicit_hash_key_index") else None
    for record in packed.agg_record.records
]
print("indices in the aggregate:", indices)
data = base64.b64encode(packed.get_contents()[2]).decode()
with open("aggregate", "w") as file:
    file.write(data)
record = {
    "kinesisSchemaVersion": "1.0",
    "sequenceNumber": "1",
    "partitionKey": "one",
    "approximateArrivalTimestamp": 1.0,
    "data": data,
}
found = [one["kinesis"]["explicitHashKey"] for one in deaggregate_records([{"kinesis": record}])]
print("PyPI's reader:", found)
assert indices == [None, 0, None] and found == ["12345"] * 3
PY
node - <<'JS'
const assert = require("assert");
const { deaggregateSync } = require("aws-kinesis-agg");
const data = require("fs").readFileSync("aggregate", "utf8");
deaggregateSync({ data, partitionKey: "one", sequenceNumber: "1" }, true, (error, records) => {
  const found = records.map((record) => record.explicitPartitionKey);
  console.log("npm's reader:", JSON.stringify(found));
  assert.deepStrictEqual(found, ["12345", "12345", "12345"]);
});
JS
