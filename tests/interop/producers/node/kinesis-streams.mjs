// kinesis-streams: a stream of objects, put by 100, with a key from each.
import AWS from "aws-sdk";
import streams from "kinesis-streams";
import { records } from "./given.mjs";

class ByMark extends streams.KinesisWritable {
  getPartitionKey({ mark }) {
    return mark.split("~")[1];
  }
}

const client = new AWS.Kinesis({ endpoint: process.env.ENDPOINT });
const stream = new ByMark(client, process.env.STREAM, { highWaterMark: 100 });
stream.on("error", (error) => {
  console.error(`${error}`);
});
for (const { data } of records) {
  stream.write(JSON.parse(data));
}
stream.end();
