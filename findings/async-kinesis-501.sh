#!/usr/bin/env bash
# async-kinesis calls PutRecords with 501 records where 500 are allowed, and then puts one key's records out of order.
#
# async-kinesis 3.0.1, seen on 2026-11-29: with its default batch size of 500 and 600 records waiting, the first call has
# 501 records. The service refuses it as a whole. The producer lays the 501 behind the one that it took out of the
# queue meanwhile, lowers its batch size by a tenth, and puts all again: nothing is lost, and record 502 is the first of
# the stream. No record was throttled, and all have one key.
# Hurt: consumers that rely on the order of a key, whenever a producer has more than 500 records waiting.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check async-kinesis==3.0.1 aiobotocore==3.10.0
"$work/venv/bin/python" - <<'PY'
import asyncio
import logging

from botocore.exceptions import ClientError
from kinesis import Producer
from kinesis.processors import StringProcessor

logging.disable(logging.CRITICAL)
calls = []
stored = []


class Service:  # in place of the network: the limit of PutRecords, and its error
    async def put_records(self, Records, StreamName):
        calls.append(len(Records))
        if len(Records) > 500:
            message = (
                "1 validation error detected: Value at 'records' failed to satisfy constraint: "
                "Member must have length less than or equal to 500"
            )
            error = {"Code": "ValidationException", "Message": message}
            raise ClientError({"Error": error}, "PutRecords")
        stored.extend(int(one["Data"]) for one in Records)
        return {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1"} for _ in Records]}


async def main():
    producer = Producer(stream_name="s", region_name="us-east-1", processor=StringProcessor())
    producer.client, producer.stream_status = Service(), producer.ACTIVE
    for number in range(1, 601):
        await producer.queue.put(*producer.processor.add_item(str(number), "key"))
    await producer.flush()


asyncio.run(main())
breaks = sum(later < earlier for earlier, later in zip(stored, stored[1:]))
print("records in each call:", calls)
print("first stored:", stored[:3], "of", len(stored), "-", breaks, "places where the order goes back")
assert calls[0] == 501 and stored[0] == 502 and sorted(stored) == list(range(1, 601))
PY
