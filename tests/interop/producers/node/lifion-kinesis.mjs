// lifion-kinesis: putRecords by 100; it puts refused entries again by itself.
import Kinesis from "lifion-kinesis";
import { records } from "./given.mjs";

const kinesis = new Kinesis({ endpoint: process.env.ENDPOINT, streamName: process.env.STREAM });
const all = records.map(({ key, data }) => ({ partitionKey: key, data }));
for (let first = 0; first < all.length; first += 100) {
  await kinesis.putRecords({ records: all.slice(first, first + 100) });
}
