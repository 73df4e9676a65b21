#!/usr/bin/env bash
# lifion-kinesis gives the results of putRecords in another order than the records, once one of these was refused.
#
# lifion-kinesis 1.3.3, seen on 2026-11-29: three records are put. The second one is refused once; the library puts it again by
# itself, and it gets the sequence number 4. The results are those of the first, the third and the second record.
# Hurt: whoever stores each record's sequence number, which PutRecords gives by position: from the first refused one on,
# records have each other's.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts lifion-kinesis@1.3.3
AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE=1 node --no-warnings - <<'JS'
const assert = require("assert");
const http = require("http");
const Kinesis = require("lifion-kinesis");

const stored = {};
let calls = 0;
const server = http.createServer((request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    calls += 1;
    const refused = { ErrorCode: "ProvisionedThroughputExceededException", ErrorMessage: "Rate exceeded" };
    const Records = JSON.parse(body).Records.map(({ Data }, at) => {
      if (calls === 1 && at === 1) return refused;
      const SequenceNumber = `${calls === 1 ? at + 1 : 4}`;
      stored[Buffer.from(Data, "base64").toString()] = SequenceNumber;
      return { SequenceNumber, ShardId: "shardId-000000000000" };
    });
    response.end(JSON.stringify({ FailedRecordCount: calls === 1 ? 1 : 0, Records }));
  });
});
server.listen(0, "127.0.0.1", async () => {
  const endpoint = `http://127.0.0.1:${server.address().port}`;
  const client = new Kinesis({
    endpoint, region: "us-east-1", accessKeyId: "a", secretAccessKey: "b", streamName: "s",
  });
  const records = ["one", "two", "three"].map((data) => ({ data, partitionKey: "k" }));
  const result = await client.putRecords({ records });
  const told = result.records.map(({ sequenceNumber }) => sequenceNumber);
  console.log("sequence numbers in the stream:", JSON.stringify(stored));
  console.log("results for one, two, three:   ", JSON.stringify(told));
  assert.deepStrictEqual(stored, { one: "1", two: "4", three: "3" });
  assert.deepStrictEqual(told, ["1", "3", "4"]);
  process.exit();
});
JS
