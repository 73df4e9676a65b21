#!/usr/bin/env bash
# kinesis-readable reads a closed shard from the beginning, again and again.
#
# kinesis-readable 1.2.0 (npm), seen on 2026-11-29. Expected: when the last page of a closed shard has no
# NextShardIterator, its records are delivered once, and the stream ends or is silent. Seen: the reader asks for a first
# iterator again, and delivers all records of the shard once more, without end. If the last page is empty
# instead, it calls GetRecords without an iterator, and emits the service's ValidationException.
# Hurt: its users who reshard. Each record of the parent is repeated, with `startAfter` or TRIM_HORIZON alike.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts kinesis-readable@1.2.0
node - <<'JS'
const assert = require("assert");
const KinesisReadable = require("kinesis-readable");

const calls = [];

// In place of the network: a closed shard of three records, in two pages.
const client = {
  describeStream(request, callback) {
    callback(null, { StreamDescription: { Shards: [{ ShardId: "shardId-000000000000" }] } });
  },
  getShardIterator(request, callback) {
    calls.push(request.ShardIteratorType);
    callback(null, { ShardIterator: "first" });
  },
  getRecords({ ShardIterator }, callback) {
    const page = (...numbers) => numbers.map((number) => ({ Data: `${number}`, SequenceNumber: `${number}` }));
    const pages = {
      first: { Records: page(1, 2), NextShardIterator: "second" },
      second: { Records: page(3) },
    };
    callback(null, pages[ShardIterator]);
  },
};

const found = [];
const reader = KinesisReadable(client, "s", { iterator: "TRIM_HORIZON", readInterval: 1 });
reader.on("data", (records) => {
  found.push(...records.map((record) => record.Data));
  if (found.length === 9) {
    console.log("delivered:", found.join(" "), "- and so on");
    console.log("calls of GetShardIterator:", calls.join(", "));
    assert.deepStrictEqual(found.join(""), "123123123");
    assert(calls.length >= 3);
    process.exit();
  }
});
JS
