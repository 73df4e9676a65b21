#!/usr/bin/env bash
# aws-kinesis-agg (npm) fills an aggregate to a size with which the service refuses it.
#
# aws-kinesis-agg 4.2.8, seen on 2026-11-29: aggregates have up to 1 MiB of data. The service counts the partition key of
# the record, too (PutRecord: data and key together up to 1 MiB, unless the stream allows more). An aggregate that is
# full to the byte is too large by its key. Keys outside ASCII are counted by their UTF-16 units, so the data
# itself can be more than 1 MiB.
# Hurt: whoever fills aggregates. PutRecord gets a ValidationException, and all user records of the aggregate are lost
# unless the program packs them anew.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts aws-kinesis-agg@4.2.8
node - <<'JS'
const assert = require("assert");
const { RecordAggregator } = require("aws-kinesis-agg");

const LIMIT = 1024 * 1024;

// Fills an aggregate to the last byte that the library lets in, and returns the sizes.
function full(key, size) {
  const aggregator = new RecordAggregator();
  let next = { partitionKey: key(0), data: Buffer.alloc(size) };
  for (let number = 1; aggregator.checkIfUserRecordFits(next); number += 1) {
    aggregator.addUserRecord(next);
    next = { partitionKey: key(number), data: Buffer.alloc(size) };
  }
  while (next.data.length && !aggregator.checkIfUserRecordFits(next)) {
    next.data = next.data.subarray(1);
  }
  if (next.data.length) {
    aggregator.addUserRecord(next);
  }
  const { data, partitionKey } = aggregator.build();
  return { data: data.length, key: Buffer.byteLength(partitionKey) };
}

const plain = full(() => "an-order-of-a-customer", 1000);
const other = full((number) => "\u00e9".repeat(100) + number, 1000);
console.log("full aggregate, bytes of data and key:", JSON.stringify(plain), "limit:", LIMIT);
console.log("with keys outside ASCII:", JSON.stringify(other));
assert(plain.data <= LIMIT && plain.data + plain.key > LIMIT);
assert(other.data > LIMIT);
JS
