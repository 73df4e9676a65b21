"""The service's quotas, and the meters that enforce them.

Numbers: https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html and the API
reference of each operation. "MB" there is 2**20 bytes here. Times are in milliseconds of the clock.
"""

# A program that exceeds a limit has to fail here as it fails on Kinesis, and one that stays below
# must not. Hence:
#
# - Most limits are token buckets that hold one second (`Bucket`): a burst of a second's quota
#   passes, as on the service.
# - The bytes of a read are known only after it, and a page may have the bytes of five seconds. So
#   `ReadMeter` refuses the reads after it, not the page. A bucket would refuse the page that the
#   service returns.
# - A record or an event may be larger than a second's quota, since UpdateMaxRecordSize. It passes,
#   and delays what comes after it: a bucket that waited for room would never let it pass.
#
# All of them read the clock of the service, so a test with a `ManualClock` decides when a second is
# over. Where a limit differs by region, the lowest is taken: a program that fits there fits
# everywhere.

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

MIB = 1 << 20
MAX_RECORDS_PER_PUT = 500
MAX_PUT_BYTES = 10 * MIB
MAX_RECORD_BYTES = MIB
"""The default; UpdateMaxRecordSize raises it up to `MAX_PUT_BYTES`."""
MAX_RECORDS_PER_GET = 10_000
MAX_GET_BYTES = 10 * MIB
ITERATOR_LIFE_MS = 300_000
TOKEN_LIFE_MS = 300_000
MAX_CONSUMERS = 20
"""Registered consumers and queues of a stream, together."""
MAX_COMMITTED_CONSUMERS = 50
"""The limit for on-demand streams of an account with the minimum throughput billing commitment."""
MAX_CREATING_CONSUMERS = 5
MAX_TAGS = 50
MAX_STREAM_SHARDS = 10_000
MAX_WARM_MIBPS = 10 * 1024
MAX_EVENT_BYTES = MIB
SUBSCRIPTION_LIFE_MS = 300_000

_ACCOUNT_CALLS = {
    "AddTagsToStream": 5,
    "CreateStream": 5,
    "DecreaseStreamRetentionPeriod": 5,
    "DeleteStream": 5,
    "DeregisterStreamConsumer": 5,
    "DescribeAccountSettings": 5,
    "DescribeLimits": 1,
    "DescribeStream": 10,
    "DescribeStreamConsumer": 20,
    "DescribeStreamSummary": 20,
    "IncreaseStreamRetentionPeriod": 5,
    "ListStreamConsumers": 5,
    "ListStreams": 5,
    "ListTagsForStream": 5,
    "MergeShards": 5,
    "RegisterStreamConsumer": 5,
    "RemoveTagsFromStream": 5,
    "SplitShard": 5,
    "UpdateAccountSettings": 5,
    "UpdateShardCount": 10,
    "UpdateStreamWarmThroughput": 5,
}
# Elsewhere the default is 1,000 or 6,000.
_SHARDS_BY_REGION = {"us-east-1": 20_000, "us-west-2": 20_000, "eu-west-1": 20_000}
_SHARDS_ELSEWHERE = 1000


@dataclasses.dataclass(frozen=True)
class Limits:
    """Rates per second: per shard, per stream, or per account and region.

    subscription_bytes: per subscription to a shard. subscribe_interval_ms: the least time between
    two successful SubscribeToShard calls of one consumer for one shard.
    account_shards: the open shards of all provisioned streams of a region; None for the service's
    default. account_on_demand_streams: the on-demand streams of a region. creating_streams: the
    streams of a region in state CREATING. changing_queues: the queues of a region in state CREATING
    or DELETING. queue_in_flight: the records of a queue that are received, not acknowledged and not
    visible.
    """

    shard_get_records: int = 5
    shard_get_iterators: int = 5
    shard_read_bytes: int = 2 * MIB
    shard_write_bytes: int = MIB
    shard_write_records: int = 1000
    subscription_bytes: int = 2 * MIB
    subscribe_interval_ms: int = 5000
    stream_list_shards: int = 1000
    stream_dry_runs: int = 1
    account_shards: int | None = None
    account_on_demand_streams: int = 50
    creating_streams: int = 5
    changing_queues: int = 5
    queue_in_flight: int = 120_000
    account_calls: Mapping[str, int] = dataclasses.field(default_factory=lambda: _ACCOUNT_CALLS)

    def shards_in(self, region: str) -> int:
        """Return the account's shard limit in a region."""
        if self.account_shards is not None:
            return self.account_shards
        return _SHARDS_BY_REGION.get(region, _SHARDS_ELSEWHERE)


class Bucket:
    """A token bucket: at most `rate` in a burst, and `rate` per second in the long run."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        self._at = 0

    def fits(self, now: int, amount: int, rate: int) -> bool:
        if now > self._at:
            self._used = max(0.0, self._used - (now - self._at) * rate / 1000)
            self._at = now
        return self._used + amount <= rate + 1e-6

    def take(self, now: int, amount: int, rate: int) -> bool:
        """Use `amount` and return True, or use nothing and return False."""
        if not self.fits(now, amount, rate):
            return False
        self._used += amount
        return True

    def use(self, amount: int) -> None:
        self._used += amount

    def wait_ms(self, amount: int, rate: int) -> int:
        """Return the ms after the `now` of the last `fits` until `amount` fits; at most `rate`."""
        return math.ceil(max(0.0, self._used + amount - rate) * 1000 / rate)


class ReadMeter:
    """A meter of the bytes read from a shard, whose number is known only after the read.

    A page may be far larger than one second's quota. It is delivered, and further reads are refused
    until the quota has caught up: "if a call to GetRecords returns 10 MB, subsequent calls made
    within the next 5 seconds throw an exception".
    """

    __slots__ = ("_since", "_used")

    def __init__(self) -> None:
        self._since = 0
        self._used = 0

    def has_quota(self, now: int, rate: int) -> bool:
        if now - self._since >= max(1000.0, self._used * 1000 / rate):
            self._since = now
            self._used = 0
        return self._used < rate

    def use(self, amount: int) -> None:
        self._used += amount


class StreamUse:
    """The meters of one stream."""

    __slots__ = ("dry_runs", "list_shards")

    def __init__(self) -> None:
        self.list_shards = Bucket()
        self.dry_runs = Bucket()


class ShardUse:
    """The meters of one shard."""

    __slots__ = ("get_iterators", "get_records", "read_bytes", "write_bytes", "write_records")

    def __init__(self) -> None:
        self.get_records = Bucket()
        self.get_iterators = Bucket()
        self.read_bytes = ReadMeter()
        self.write_bytes = Bucket()
        self.write_records = Bucket()

    def admit_write(self, now: int, size: int, limits: Limits) -> bool:
        if not self.write_records.fits(now, 1, limits.shard_write_records):
            return False
        # A record larger than one second's quota is stored, and delays the records after it.
        least = min(size, limits.shard_write_bytes)
        if not self.write_bytes.fits(now, least, limits.shard_write_bytes):
            return False
        self.write_bytes.use(size)
        self.write_records.use(1)
        return True
