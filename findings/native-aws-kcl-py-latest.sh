#!/usr/bin/env bash
# native-aws-kcl-py loses records after each reshard and each expired iterator of a consumer that began at LATEST.
#
# native-aws-kcl-py 0.1.1, seen on 2026-11-29. Expected, as of a Java KCL: LATEST is the place of the first start. A child of a
# split is read from its beginning (10 of 10 records), and an iterator that expired is replaced by one behind the last
# record (3 of 3). Seen: the child's lease is created with LATEST, up to 30 seconds after the split, and the 10 records
# that it had by then are never read. An expired iterator is replaced by the position of the start: LATEST loses
# the 3 records that came meanwhile, and a sequence number gives everything since the start once more.
# Hurt: whoever starts with LATEST and reshards, or has a processor that once takes more than five minutes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check native-aws-kcl-py==0.1.1 aioboto3==13.4.0 aiobotocore==2.18.0 boto3==1.36.1 botocore==1.36.1
"$work/venv/bin/python" - <<'PY'
import asyncio

import aioboto3
from botocore.exceptions import ClientError
from native_aws_kcl_py import InitialPositionInStream, InitialPositionInStreamExtended
from native_aws_kcl_py.kinesis.record_fetcher import RecordFetcher
from native_aws_kcl_py.kinesis.shard_detector import ShardDetector
from native_aws_kcl_py.kinesis.shard_syncer import ShardSyncer
from native_aws_kcl_py.types import ExtendedSequenceNumber

LATEST = InitialPositionInStreamExtended(InitialPositionInStream.LATEST)
PARENT, CHILDREN = "shardId-000000000000", ["shardId-000000000001", "shardId-000000000002"]


class Service:  # in place of the network: a stream of a closed shard and two open ones
    def __init__(self):
        self.records = {shard: [] for shard in [PARENT, *CHILDREN]}
        self.expired = False

    def put(self, shard, count):
        for _ in range(count):
            self.records[shard].append(str(len(self.records[shard]) + 1))

    async def list_shards(self, **_):
        parent = {"ShardId": PARENT, "SequenceNumberRange": {"StartingSequenceNumber": "0", "EndingSequenceNumber": "9"}}
        child = {"ParentShardId": PARENT, "SequenceNumberRange": {"StartingSequenceNumber": "10"}}
        shards = [parent, *({"ShardId": shard, **child} for shard in CHILDREN)]
        whole = {"StartingHashKey": "0", "EndingHashKey": "1"}
        return {"Shards": [{"HashKeyRange": whole, **shard} for shard in shards]}

    async def get_shard_iterator(self, ShardId, ShardIteratorType, StartingSequenceNumber="0", **_):
        latest = ShardIteratorType == "LATEST"
        place = len(self.records[ShardId]) if latest else int(StartingSequenceNumber)
        return {"ShardIterator": f"{ShardId} {place}"}

    async def get_records(self, ShardIterator, Limit):
        if self.expired:
            self.expired = False
            raise ClientError({"Error": {"Code": "ExpiredIteratorException"}}, "GetRecords")
        shard, place = ShardIterator.split()
        found = self.records[shard][int(place) :]
        page = [{"SequenceNumber": one, "PartitionKey": "key", "Data": one.encode()} for one in found]
        return {"Records": page, "NextShardIterator": f"{shard} {len(self.records[shard])}"}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None


class Leases:  # in place of the lease table
    def __init__(self, *leases):
        self.leases = {lease.lease_key: lease for lease in leases}

    async def list_leases(self):
        return list(self.leases.values())

    async def create_lease(self, lease):
        self.leases[lease.lease_key] = lease
        return True

    def get_lease(self, key):
        return self.leases.get(key)


async def read(fetcher):
    return len((await fetcher.fetch_records()).records)


async def after_split(service):
    """The first lease of a child, and the records read of the ten that it has by then."""
    detector = ShardDetector("s", "us-east-1")
    parents = ShardSyncer(detector, Leases(), LATEST)._create_lease_for_shard(PARENT, [])
    parents.checkpoint = ExtendedSequenceNumber("SHARD_END")
    leases = Leases(parents)
    service.put(CHILDREN[0], 10)
    await ShardSyncer(detector, leases, LATEST).sync_shards()
    position = leases.get_lease(CHILDREN[0]).checkpoint.sequence_number
    fetcher = RecordFetcher("s", CHILDREN[0], "us-east-1", initial_position=LATEST)
    await fetcher.initialize(position)
    return position, await read(fetcher)


async def after_expiry(service, position):
    """The records read before and after an iterator expires, of two and three."""
    fetcher = RecordFetcher("s", CHILDREN[1], "us-east-1", initial_position=LATEST)
    await fetcher.initialize(position)
    service.put(CHILDREN[1], 2)
    before = await read(fetcher)
    service.put(CHILDREN[1], 3)
    service.expired = True
    return before, await read(fetcher)


async def main():
    service = Service()
    aioboto3.Session.client = lambda *_, **__: service
    child = await after_split(service)
    print("a child's first lease, and records read of 10:", child)
    latest = await after_expiry(service, "LATEST")
    print("iterator expired, begun at LATEST: read before (of 2), after (of 3):", latest)
    number = await after_expiry(service, "5")
    print("iterator expired, begun behind record 5: read before (of 2), after (of 3):", number)
    assert (child, latest, number) == (("LATEST", 0), (2, 0), (2, 5))


asyncio.run(main())
PY
