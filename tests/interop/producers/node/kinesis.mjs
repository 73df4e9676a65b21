// kinesis: a stream of records, one PutRecord for each, with its key.
import kinesis from "kinesis";
import { records } from "./given.mjs";

const { hostname: host, port } = new URL(process.env.ENDPOINT);
const stream = kinesis.stream({ name: process.env.STREAM, region: process.env.AWS_REGION, host, port });
stream.on("error", (error) => {
  console.error(`${error}`);
});
for (const { key, data } of records) {
  stream.write({ PartitionKey: key, Data: Buffer.from(data) });
}
stream.end();
