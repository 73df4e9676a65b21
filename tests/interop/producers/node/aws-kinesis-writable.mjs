// aws-kinesis-writable: a stream of objects, put by 100; the SDK is the one that it is made for.
import AWS from "aws-sdk";
import KinesisStream from "aws-kinesis-writable";
import { records } from "./given.mjs";

const stream = new KinesisStream({
  kinesis: new AWS.Kinesis({ endpoint: process.env.ENDPOINT }),
  streamName: process.env.STREAM,
  objectMode: true,
  partitionKey: ({ mark }) => mark.split("~")[1],
  buffer: { length: 100, timeout: 1 },
});
stream.on("error", (error) => {
  console.error(`${error}`);
});
for (const { data } of records) {
  stream.write(JSON.parse(data));
}
stream.end();
