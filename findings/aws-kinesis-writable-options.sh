#!/usr/bin/env bash
# aws-kinesis-writable's streams share one set of buffer options: those of a stream change those of all others.
#
# aws-kinesis-writable 4.3.0, seen on 2026-11-29: the options of a stream are merged into the object with the default values, and
# this object is used. A stream with a buffer of 100 has a buffer of 2 as soon as another one is made with 2, and one that
# is made without options has 2, too.
# Hurt: programs with two such streams. The other stream's length, time limit, retries and priorities apply.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts aws-kinesis-writable@4.3.0 aws-sdk@2.1693.0
AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE=1 node --no-warnings - <<'JS'
const assert = require("assert");
const KinesisStream = require("aws-kinesis-writable");

const made = (buffer) => new KinesisStream({ kinesis: {}, streamName: "s", partitionKey: "key", buffer });
const first = made({ length: 100, timeout: 1 });
console.log("the first stream's options:", first.buffer.length, first.buffer.timeout);
const second = made({ length: 2, timeout: 60 });
const third = made();
console.log("after a second stream with 2, 60:", first.buffer.length, first.buffer.timeout);
console.log("a third one without options (defaults 10, 5):", third.buffer.length, third.buffer.timeout);
assert.deepStrictEqual([first.buffer.length, first.buffer.timeout], [2, 60]);
assert.deepStrictEqual([third.buffer.length, third.buffer.timeout], [2, 60]);
JS
