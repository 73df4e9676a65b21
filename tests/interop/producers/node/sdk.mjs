// The AWS SDK for JavaScript: PutRecords by 100; entries that were refused are put again.
import { KinesisClient, PutRecordsCommand } from "@aws-sdk/client-kinesis";
import { records } from "./given.mjs";

const kinesis = new KinesisClient({ endpoint: process.env.ENDPOINT });
const all = records.map(({ key, data }) => ({ PartitionKey: key, Data: Buffer.from(data) }));
for (let first = 0; first < all.length; first += 100) {
  let rest = all.slice(first, first + 100);
  while (rest.length) {
    const answer = await kinesis.send(new PutRecordsCommand({ StreamName: process.env.STREAM, Records: rest }));
    rest = rest.filter((_, at) => answer.Records[at].ErrorCode);
  }
}
kinesis.destroy();
