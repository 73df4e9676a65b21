// aws-kinesis-agg's reader: the user records of stored ones.
import agg from "aws-kinesis-agg";
import { createInterface } from "node:readline";

for await (const line of createInterface({ input: process.stdin })) {
  const { Data: data, PartitionKey: partitionKey, SequenceNumber: sequenceNumber } = JSON.parse(line);
  agg.deaggregateSync({ data, partitionKey, sequenceNumber }, true, (error, records) => {
    if (error) throw error;
    for (const one of records) {
      const text = Buffer.from(one.data, "base64").toString("base64");
      console.log(JSON.stringify({ key: one.partitionKey, hash_key: one.explicitPartitionKey ?? null, data: text }));
    }
  });
}
