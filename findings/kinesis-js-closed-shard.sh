#!/usr/bin/env bash
# npm's kinesis drops the records of the last page of a closed shard.
#
# kinesis 1.2.2, seen on 2026-11-29: an answer of GetRecords without a NextShardIterator ends a shard, and its records
# are thrown away. Three records of a shard that was merged or split afterwards come in one such page: the stream
# ends without any.
# Hurt: whoever reads a stream with it and reshards.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts kinesis@1.2.2
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out certificate.pem 2>/dev/null
node --no-warnings - <<'JS'
const assert = require("assert");
const fs = require("fs");
const https = require("https");
const kinesis = require("kinesis");

// In place of the service: a shard with two pages, one with an iterator for the rest and the last.
const page = (from, count, next) => ({
  Records: Array.from({ length: count }, (_, at) => ({
    SequenceNumber: `${from + at}`, PartitionKey: "key", Data: Buffer.from(`${from + at}`).toString("base64"),
  })),
  ...(next && { NextShardIterator: next }),
});
const answers = { first: page(1, 2, "second"), second: page(3, 3) };
const server = https.createServer({ key: fs.readFileSync("key.pem"), cert: fs.readFileSync("certificate.pem") });
server.on("request", (request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    const { ShardIterator } = JSON.parse(body);
    const isFirst = request.headers["x-amz-target"].endsWith("GetShardIterator");
    response.end(JSON.stringify(isFirst ? { ShardIterator: "first" } : answers[ShardIterator]));
  });
});
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const credentials = { accessKeyId: "a", secretAccessKey: "b" };
  const found = [];
  const stream = kinesis.stream({
    name: "s", host: "127.0.0.1", port, region: "us-east-1", credentials, oldest: true,
    shards: [{ id: "shardId-000000000000", readSequenceNumber: null, nextShardIterator: null, ended: false }],
  });
  stream.on("data", (record) => found.push(record.Data.toString()));
  stream.on("end", () => {
    console.log("records of the shard: 1 2 3 4 5; read until its end:", found.join(" "));
    assert.deepStrictEqual(found, ["1", "2"]);
    process.exit();
  });
});
JS
