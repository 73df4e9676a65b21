#!/usr/bin/env bash
# aws-kinesis-writable takes a PutRecords call with refused records for a success, and loses these.
#
# aws-kinesis-writable 4.3.0, seen on 2026-11-29: PutRecords answers 200 with a FailedRecordCount of 1 and an ErrorCode
# for one of three records. The stream makes no second call, and emits no error.
# Hurt: whoever writes faster than a shard takes: the throttled records are lost without a sign.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts aws-kinesis-writable@4.3.0 aws-sdk@2.1693.0
AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE=1 node --no-warnings - <<'JS'
const assert = require("assert");
const http = require("http");
const AWS = require("aws-sdk");
const KinesisStream = require("aws-kinesis-writable");

const calls = [];
const errors = [];
const server = http.createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    calls.push(JSON.parse(body).Records.length);
    const put = { SequenceNumber: "1", ShardId: "shardId-000000000000" };
    const refused = { ErrorCode: "ProvisionedThroughputExceededException", ErrorMessage: "Rate exceeded" };
    response.end(JSON.stringify({ FailedRecordCount: 1, Records: [put, refused, put] }));
  });
});
server.listen(0, "127.0.0.1", () => {
  const endpoint = `http://127.0.0.1:${server.address().port}`;
  const kinesis = new AWS.Kinesis({ endpoint, region: "us-east-1", accessKeyId: "a", secretAccessKey: "b" });
  const stream = new KinesisStream({
    kinesis, streamName: "s", objectMode: true, partitionKey: "key", buffer: { length: 3, timeout: 1 },
  });
  stream.on("error", (error) => errors.push(error));
  for (const number of [1, 2, 3]) {
    stream.write({ number });
  }
  stream.end();
  setTimeout(() => {
    console.log("records of each call:", JSON.stringify(calls), "- one was refused");
    console.log("errors:", errors.length);
    assert.deepStrictEqual([calls, errors], [[3], []]);
    process.exit();
  }, 3000);
});
JS
