#!/usr/bin/env bash
# lifion-aws-event-stream passes on one event of a chunk, whatever else is in it.
#
# lifion-aws-event-stream 1.0.7 (npm; lifion-kinesis 1.3.3 reads SubscribeToShard with it), seen on 2026-11-29. Expected: five
# events come out, however the bytes of the connection are cut. Seen: a chunk with five events gives the first one. The
# others wait for further chunks, each of which gives one, and what still waits when the connection ends is dropped
# without an error. The length of an event that waits is read from the next chunk instead: when events differ
# in size, checksums fail, or the event is never complete.
# Hurt: consumers with enhanced fan-out. A subscription that catches up has several events in a chunk, and lifion-kinesis
# goes on behind the last one that it saw: they come late, or after the next subscription.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts lifion-aws-event-stream@1.0.7 @smithy/eventstream-codec@4.5.2
node - <<'JS'
const assert = require("assert");
const { EventStreamCodec } = require("@smithy/eventstream-codec");
const { Parser } = require("lifion-aws-event-stream");

const codec = new EventStreamCodec(
  (bytes) => Buffer.from(bytes).toString("utf8"),
  (text) => Buffer.from(text, "utf8"),
);
const text = (value) => ({ type: "string", value });

function event(number, records) {
  const payload = { ContinuationSequenceNumber: `${number}`, MillisBehindLatest: 0, Records: records };
  const headers = {
    ":message-type": text("event"),
    ":event-type": text("SubscribeToShardEvent"),
    ":content-type": text("application/x-amz-json-1.1"),
  };
  return Buffer.from(codec.encode({ headers, body: Buffer.from(JSON.stringify(payload)) }));
}

// What the parser gives for these chunks of a connection that ends.
async function parsed(chunks) {
  const parser = new Parser();
  const found = [];
  parser.on("data", ({ payload }) => found.push(payload.ContinuationSequenceNumber));
  parser.on("error", (error) => found.push(error.message));
  const end = new Promise((resolve) => parser.on("close", resolve));
  chunks.forEach((chunk) => parser.write(chunk));
  parser.end();
  await end;
  return found;
}

(async () => {
  const record = { Data: "eA==", PartitionKey: "key", SequenceNumber: "1" };
  const same = [1, 2, 3, 4, 5].map((number) => event(number, []));
  const other = [1, 2, 3, 4, 5].map((number) => event(number, Array(number).fill(record)));
  const seen = {
    "a chunk each": await parsed(same),
    "all in a chunk": await parsed([Buffer.concat(same)]),
    "the first two in a chunk": await parsed([Buffer.concat(same.slice(0, 2)), ...same.slice(2)]),
    "the same, of different sizes": await parsed([Buffer.concat(other.slice(0, 2)), ...other.slice(2)]),
  };
  Object.entries(seen).forEach(([form, found]) => console.log(`${form}: ${found.join(", ")}`));
  const [each, all, two, sizes] = Object.values(seen);
  assert.deepStrictEqual(each, ["1", "2", "3", "4", "5"]);
  assert.deepStrictEqual(all, ["1"]);
  assert.deepStrictEqual(two, ["1", "2", "3", "4"]);
  assert(sizes.length < 5 && sizes[0] === "1" && !sizes.includes("5"), sizes);
})();
JS
