// aws-kinesis-agg: aggregates of up to 1 MB, one PutRecord for each, by the SDK for JavaScript.
import { KinesisClient, PutRecordCommand } from "@aws-sdk/client-kinesis";
import agg from "aws-kinesis-agg";
import { records } from "./given.mjs";

const kinesis = new KinesisClient({ endpoint: process.env.ENDPOINT });
const given = records.map(({ key, data }) => ({ partitionKey: key, data: Buffer.from(data) }));
const put = (encoded, done) => {
  const { partitionKey: PartitionKey, data: Data, ExplicitHashKey } = encoded;
  const command = new PutRecordCommand({ StreamName: process.env.STREAM, PartitionKey, Data, ExplicitHashKey });
  kinesis.send(command).then((answer) => done(null, answer), done);
};
const failed = (error) => {
  console.error(`${error}`);
};
await new Promise((resolve) => agg.aggregate(given, put, resolve, failed));
kinesis.destroy();
