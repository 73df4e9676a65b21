#!/usr/bin/env bash
# aws-kinesis-agg (npm) gives user records each other's partition keys if some of these look like integers.
#
# aws-kinesis-agg 4.2.8, seen on 2026-11-29: records with the keys "10", "ann", "2" are packed, and read by the same
# library. They come back with the keys "2", "10", "ann". The table of keys is written from Object.keys, which
# lists names that look like integers first, in the order of numbers; the indices are those of the order of insertion.
# Hurt: every reader, of any library: the aggregate itself is wrong. Identifiers that are numbers are usual keys.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts aws-kinesis-agg@4.2.8
node - <<'JS'
const assert = require("assert");
const { RecordAggregator, deaggregateSync } = require("aws-kinesis-agg");

const keys = ["10", "ann", "2", "10"];
const aggregator = new RecordAggregator();
for (const partitionKey of keys) {
  aggregator.addUserRecord({ partitionKey, data: Buffer.from(partitionKey) });
}
const { data, partitionKey } = aggregator.build();
const record = { data: data.toString("base64"), partitionKey, sequenceNumber: "1" };
deaggregateSync(record, true, (error, records) => {
  const data = records.map((one) => Buffer.from(one.data, "base64").toString());
  const found = records.map((one) => one.partitionKey);
  console.log("put with the keys:", JSON.stringify(keys));
  console.log("read, by data:    ", JSON.stringify(data));
  console.log("read with the keys:", JSON.stringify(found));
  assert.deepStrictEqual(data, keys);
  assert.deepStrictEqual(found, ["2", "10", "ann", "2"]);
});
JS
