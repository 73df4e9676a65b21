#!/usr/bin/env bash
# aiokpl loses a record that is refused while its producer closes, and resolves no outcome of its call.
#
# aiokpl 0.2.0, seen on 2026-11-29. Expected: leaving `async with Producer(...)` sends what was put, as its "graceful
# shutdown", also if PutRecords refuses an entry once. Seen: on leaving, the aggregator closes before the calls return.
# The refused record is put into the closed aggregator: the block raises a RuntimeError, the record is never sent, and
# the outcomes of the whole call stay unknown, also those of the nine records that are in the stream. With 1,000
# records it was also seen without any refusal.
# Hurt: programs that put and leave, as for a batch. Awaiting each outcome inside the block avoids it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check aiokpl==0.2.0 aiobotocore==3.10.0 anyio==4.16.0
"$work/venv/bin/python" - <<'PY'
import anyio
from aiokpl import Config, Producer


class Service:  # in place of the network: one shard, and the first entry of the first call is refused
    def __init__(self):
        self.calls = []
        self.stored = []

    async def list_shards(self, **_):
        whole = {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)}
        return {"Shards": [{"ShardId": "shardId-000000000000", "HashKeyRange": whole, "SequenceNumberRange": {"StartingSequenceNumber": "0"}}]}

    async def put_records(self, StreamName, Records):
        await anyio.sleep(0.05)
        self.calls.append(len(Records))
        answers = []
        for place, entry in enumerate(Records):
            if len(self.calls) == 1 and place == 0:
                answers.append({"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"})
            else:
                self.stored.append(entry["Data"])
                answers.append({"ShardId": "shardId-000000000000", "SequenceNumber": "1"})
        return {"FailedRecordCount": len(Records) - sum("ShardId" in one for one in answers), "Records": answers}


def raised(error):
    """The innermost of the errors in an error of a group of tasks."""
    while hasattr(error, "exceptions"):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def put(awaits):
    """The records stored, the outcomes known, and the error of the block, of ten records that are put."""
    config = Config(region="us-east-1", aggregation_enabled=False, aws_access_key_id="a", aws_secret_access_key="b")
    service, outcomes, error = Service(), [], None
    try:
        async with Producer(config) as producer:
            producer._kinesis_client = service
            for number in range(10):
                data = b"%d" % number
                outcomes.append(await producer.put_record(stream="s", partition_key="key", data=data))
            if awaits:
                for outcome in outcomes:
                    await outcome.wait()
    except BaseException as group:
        error = raised(group)
    return len(service.stored), sum(outcome.is_set() for outcome in outcomes), error


awaited, left = anyio.run(put, True), anyio.run(put, False)
print("each outcome awaited: stored, known, error =", awaited)
print("left at once:         stored, known, error =", left)
assert awaited == (10, 10, None)
assert left[:2] == (9, 0) and left[2].startswith("RuntimeError: Aggregator must be used"), left
PY
