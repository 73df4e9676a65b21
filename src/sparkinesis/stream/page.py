"""Pages of records: answers of GetRecords, and events of subscriptions, as typed values. Pure.

The field names are those of the service's API reference: GetRecords, "Response Syntax", and
SubscribeToShardEvent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec

from sparkinesis.public import public
from sparkinesis.stream.position import END_OF_TIME_MS
from sparkinesis.stream.shard import Shard

MAX_RECORDS_PER_CALL = 10_000
"""The most records that one GetRecords call returns; it also returns 10 MB at most."""

_EpochSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=END_OF_TIME_MS // 1000)]
_Millis: TypeAlias = Annotated[int, msgspec.Meta(lt=END_OF_TIME_MS)]
_HashKey: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,39}\Z")]


@public
class Record(msgspec.Struct, frozen=True, gc=False, rename="pascal", kw_only=True):
    """A record as Kinesis stores it, which may be an aggregate of many user records."""

    data: bytes
    partition_key: str | None = None
    """The partition key; None for a record put without a key, which only streams with
    RecordDistributionStrategy AUTO accept."""
    sequence_number: str
    approximate_arrival_timestamp: _EpochSeconds | None = None
    """The arrival time in epoch seconds, with a precision of milliseconds."""

    @property
    def arrived_ms(self) -> int | None:
        """The arrival time in epoch milliseconds; None if the service does not return it."""
        seconds = self.approximate_arrival_timestamp
        return None if seconds is None else round(seconds * 1000)


class HashKeyRange(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """The part of the 128-bit hash space that a shard owns: decimal text, both ends inclusive."""

    starting_hash_key: _HashKey
    ending_hash_key: _HashKey


class ChildShard(msgspec.Struct, frozen=True, rename="pascal"):
    """A shard that continues a closed one, as the closed shard's last page names it."""

    shard_id: str
    parent_shards: list[str]
    hash_key_range: HashKeyRange


def shard_of(child: ChildShard) -> Shard:
    """Return the shard that the last page of a closed shard names as its child."""
    keys = child.hash_key_range
    hash_range = (int(keys.starting_hash_key), int(keys.ending_hash_key))
    return Shard(child.shard_id, tuple(child.parent_shards), hash_range=hash_range)


class Page(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer of one GetRecords call: at most 10,000 records and 10 MB of data."""

    records: list[Record]
    next_shard_iterator: str | None = None
    """The iterator of the next page; None on the last page of a closed shard."""
    millis_behind_latest: _Millis | None = None
    child_shards: list[ChildShard] | None = None
    """Set on the last page of a closed shard only."""


class MendedPage(Page, frozen=True):
    """A page whose records came out of order, or twice: they are in order now, each once."""

    mended: int = 0
    """The number of records that came behind later ones, or again."""


class SubscribeToShardEvent(msgspec.Struct, frozen=True, rename="pascal"):
    """An event of a subscription: the next records of the shard."""

    records: list[Record]
    continuation_sequence_number: str | None = None
    """The position after this event: the next subscription starts AFTER this number.

    Also set on an event without records. None on the last event of a closed shard."""
    millis_behind_latest: _Millis | None = None
    child_shards: list[ChildShard] | None = None
    """Set on the last event of a closed shard only."""


class MendedEvent(SubscribeToShardEvent, frozen=True):
    """An event whose records came out of order, or twice, as `MendedPage`."""

    mended: int = 0
    """The number of records that came behind later ones, or again."""


def is_empty_at_tip(fetched: Page | SubscribeToShardEvent) -> bool:
    """Return True if a page or an event has no records because the reader is at the shard's tip."""
    return not fetched.records and not fetched.millis_behind_latest


def ends_shard(event: SubscribeToShardEvent) -> bool:
    """Return True if this event is the last one of a closed shard.

    The service names the child shards in the last event, which has no continuation number. Some
    servers name them in every event of a closed shard; the last of these has no records.
    """
    is_last = event.continuation_sequence_number is None or is_empty_at_tip(event)
    return bool(event.child_shards) and is_last


def says_more_follows(event: SubscribeToShardEvent) -> bool:
    """Return True if an event shows that its shard continues.

    Any other event may be the last one of a closed shard, from a server that does not name the
    child shards.
    """
    return event.continuation_sequence_number is not None or bool(event.millis_behind_latest)


class Fetched(msgspec.Struct, frozen=True):
    """A GetRecords answer or an event, with the service's clock (epoch ms) at that moment."""

    page: Page
    size: int
    """Approximate bytes that count against the limit of the shard or the subscription."""
    service_time_ms: int
    asked_ms: int = 0
    """The service's clock (epoch ms) when the call was sent, or earlier; 0 for an event."""


def size_of(records: Sequence[Record]) -> int:
    """Return the bytes of the data and of the partition keys of records, by looking at each."""
    return sum([len(r.data) + len(r.partition_key or "") for r in records])


def split_page(fetched: Fetched, count: int) -> tuple[Fetched, Fetched]:
    """Split a page after ``count`` records into two pages.

    Both parts must have records. The first part is behind the shard's tip, and names no children.
    """
    page = fetched.page
    first, others = page.records[:count], page.records[count:]
    behind = page.millis_behind_latest
    if behind is not None:
        arrival = others[0].approximate_arrival_timestamp
        age = 0 if arrival is None else fetched.service_time_ms - math.floor(arrival * 1000)
        behind = max(behind, age, 1)
    size = min(size_of(first), fetched.size)
    head = msgspec.structs.replace(
        page, records=first, millis_behind_latest=behind, child_shards=None
    )
    tail = msgspec.structs.replace(page, records=others)
    return (
        Fetched(head, size, fetched.service_time_ms),
        Fetched(tail, fetched.size - size, fetched.service_time_ms),
    )
