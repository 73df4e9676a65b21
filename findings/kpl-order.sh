#!/usr/bin/env bash
# The KPL's daemon packs the user records of one key into an aggregate in another order than they were given in.
#
# software.amazon.kinesis:amazon-kinesis-producer 1.0.9 (Java, its native daemon for Linux), seen on 2026-11-29: one
# thread adds 100,000 small records of one key to a stream of one shard, which takes each call. Within some of the aggregates
# a record lies behind a later one. No call failed, and none was repeated.
# Hurt: consumers that take the order within a key, or the sub-sequence number, for the order in which records were added.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund --ignore-scripts aws-kinesis-agg@4.2.8
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out certificate.pem 2>/dev/null
cat > pom.xml <<'XML'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId>
  <artifactId>kpl</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>software.amazon.kinesis</groupId><artifactId>amazon-kinesis-producer</artifactId><version>1.0.9</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>2.0.17</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=libraries
cat > Main.java <<'JAVA'
import java.nio.ByteBuffer;
import software.amazon.kinesis.producer.KinesisProducer;
import software.amazon.kinesis.producer.KinesisProducerConfiguration;

public class Main {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        KinesisProducer producer = new KinesisProducer(new KinesisProducerConfiguration()
                .setRegion("us-east-1").setKinesisEndpoint("localhost").setKinesisPort(port)
                .setStsEndpoint("localhost").setStsPort(port)
                .setVerifyCertificate(false).setMetricsLevel("none"));
        for (int number = 0; number < 100_000; number++) {
            producer.addUserRecord("s", "key", ByteBuffer.wrap(String.valueOf(number).getBytes()));
        }
        producer.flushSync();
        producer.destroy();
    }
}
JAVA
AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b node - <<'JS'
const assert = require("assert");
const { spawn } = require("child_process");
const fs = require("fs");
const https = require("https");
const { deaggregateSync } = require("aws-kinesis-agg");

// In place of the service: a stream of one shard, which takes each call.
const ShardId = "shardId-000000000000";
const Shards = [{
  ShardId,
  HashKeyRange: { StartingHashKey: "0", EndingHashKey: `${2n ** 128n - 1n}` },
  SequenceNumberRange: { StartingSequenceNumber: "0" },
}];
const found = [];
const calls = {};
const server = https.createServer({ key: fs.readFileSync("key.pem"), cert: fs.readFileSync("certificate.pem") });
server.on("request", (request, response) => {
  let body = "";
  request.on("data", (chunk) => (body += chunk));
  request.on("end", () => {
    const operation = request.headers["x-amz-target"].split(".")[1];
    calls[operation] = (calls[operation] || 0) + 1;
    response.setHeader("Content-Type", "application/x-amz-json-1.1");
    if (operation === "ListShards") {
      return response.end(JSON.stringify({ Shards }));
    }
    const { Records } = JSON.parse(body);
    const put = Records.map(({ Data }) => ({ SequenceNumber: `${found.push(Data)}`, ShardId }));
    return response.end(JSON.stringify({ FailedRecordCount: 0, Records: put }));
  });
});
server.listen(0, "127.0.0.1", () => {
  const output = fs.openSync("producer.log", "w");
  const java = spawn("java", ["-cp", "libraries/*", "Main.java", `${server.address().port}`], { stdio: ["ignore", output, output] });
  java.on("exit", (code) => {
    const all = [];
    let disordered = 0;
    found.forEach((data, at) => {
      deaggregateSync({ data, partitionKey: "key", sequenceNumber: `${at}` }, true, (error, records) => {
        const numbers = records.map((one) => Number(Buffer.from(one.data, "base64").toString()));
        all.push(...numbers);
        disordered += numbers.some((number, place) => place > 0 && number < numbers[place - 1]) ? 1 : 0;
      });
    });
    console.log("calls, none of which failed:", JSON.stringify(calls));
    console.log(`${all.length} user records (${new Set(all).size} different) in ${found.length} records of the stream`);
    console.log("records of the stream within which the order goes back:", disordered);
    assert.deepStrictEqual([code, all.length, new Set(all).size], [0, 100000, 100000]);
    assert(disordered > 0);
    process.exit();
  });
});
JS
