"""What a PutRecords call is made of: user records as they are, or packed into aggregates."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sparkinesis.stream.kpl.messages import ENVELOPE_SIZE
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate
from sparkinesis.stream.routing import MAX_HASH_KEY, ShardMap, hash_key

AGGREGATE_KEY = "a"
"""The partition key of an aggregate: the KPL's. Its explicit hash key says where it goes."""

_FRAMING = 32
"""Bytes at most, beside its keys and data, that a user record takes in an aggregate of its own."""

MAX_KEY_LENGTH = 256
"""Characters of a partition key at most; it has one at least."""


def random_key() -> str:
    """A partition key that no other record has, so that records spread over the shards."""
    return f"{random.SystemRandom().getrandbits(64):016x}"


@dataclass(slots=True)
class PutEntry:
    """One entry of a PutRecords call.

    partition_key: empty for a record that is put without one, as streams take it that distribute
    records themselves (RecordDistributionStrategy AUTO).
    lane: entries of one lane are put one after the other; None where order does not matter.
    shard: where it is expected to land; None where that does not matter.
    members: the user records in it, in order; one for an entry that is not an aggregate.
    attempts: how often the service has refused it.
    """

    partition_key: str
    explicit_hash_key: str | None
    data: bytes
    members: Sequence[OutgoingRecord]
    lane: str | None = None
    shard: str | None = None
    attempts: int = 0

    @property
    def size(self) -> int:
        """Bytes that it counts as: its data and its partition key."""
        return len(self.data) + len(self.partition_key.encode())


def plain_entries(records: Iterable[OutgoingRecord], *, ordered: bool) -> list[PutEntry]:
    """An entry for each user record, which is its member; ordered, each partition key is a lane."""
    return [
        PutEntry(
            record[0], record[1], record[2], (record,), (record[0] or None) if ordered else None
        )
        for record in records
    ]


def why_refused(partition_key: str, explicit_hash_key: str | None) -> str | None:
    """The reason for which Kinesis refuses a record's keys; None: it takes them.

    User records may have such keys where a foreign producer packed them into an aggregate.
    """
    length, explicit = len(partition_key), explicit_hash_key
    if not 1 <= length <= MAX_KEY_LENGTH:
        return f"its partition key has {length} characters; Kinesis takes 1 to {MAX_KEY_LENGTH}"
    if explicit is not None and str(_hash_key(explicit)) != explicit:
        return (
            f"its explicit hash key is {explicit[:80]!r}; Kinesis takes a whole number in decimal "
            "from 0 to 2**128 - 1, without leading zeros"
        )
    return None


def fitting_keys(
    partition_key: str | None, explicit_hash_key: str | None, instead: str
) -> tuple[str, str | None]:
    """A record's keys where Kinesis takes them, and others where it would refuse them.

    A partition key that is too long is cut; ``instead`` stands where there is none; what is no hash
    key is left out.
    """
    known = None if explicit_hash_key is None else _hash_key(explicit_hash_key)
    return (partition_key or instead)[:MAX_KEY_LENGTH], None if known is None else str(known)


def _hash_key(text: str) -> int | None:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MAX_HASH_KEY)):
        return None
    number = int(text)
    return number if number <= MAX_HASH_KEY else None


def aggregated_entries(
    records: Iterable[OutgoingRecord], shards: ShardMap, max_size: int, *, ordered: bool
) -> list[PutEntry]:
    """Aggregates of at most ``max_size`` bytes, each with user records of one shard, in order.

    As the KPL does it: an aggregate's explicit hash key is its first user record's, so that it
    lands in the shard of them all; a user record alone, or too large for an aggregate, is put as
    it is. A reader that checks hash ranges (a KCL does) drops an aggregate that holds a user
    record of another shard. Ordered, each shard is a lane.
    """
    by_shard: defaultdict[str, list[OutgoingRecord]] = defaultdict(list)
    for record in records:
        by_shard[shards.shard_of(hash_key(record[0], record[1]))].append(record)
    return [
        _entry(members, data, shard, ordered=ordered)
        for shard, members_of_shard in by_shard.items()
        for members, data in _packed(members_of_shard, max_size)
    ]


def _entry(
    members: Sequence[OutgoingRecord], data: bytes, shard: str, *, ordered: bool
) -> PutEntry:
    key, explicit, own = members[0]
    lane = shard if ordered else None
    if len(members) == 1:
        return PutEntry(key, explicit, own, members, lane, shard)
    return PutEntry(AGGREGATE_KEY, str(hash_key(key, explicit)), data, members, lane, shard)


def _packed(
    records: Iterable[OutgoingRecord], max_size: int
) -> Iterator[tuple[Sequence[OutgoingRecord], bytes]]:
    """The user records in order, each time those that go together, and their aggregate's data."""
    fitting: list[OutgoingRecord] = []
    for record in records:
        key, explicit, data = record
        keys = len(key.encode()) + len(explicit or "")
        if ENVELOPE_SIZE + _FRAMING + keys + len(data) <= max_size:
            fitting.append(record)
            continue
        yield from _blobs(fitting, max_size)
        yield (record,), data
        fitting = []
    yield from _blobs(fitting, max_size)


def _blobs(
    records: Sequence[OutgoingRecord], max_size: int
) -> Iterator[tuple[Sequence[OutgoingRecord], bytes]]:
    rest = iter(records)
    for blob in aggregate(records, max_size):
        yield tuple(islice(rest, blob.count)), blob.data
