"""What producers do to the records of a stream, by a sample of them.

A consumer is blamed for what is lost before it reads. The sample is read from the stream, and takes
no record from another reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from sparkinesis.errors import SparkinesisError, listed
from sparkinesis.monitor.doctor.judge import Finding, counted, note, ok, problem_of
from sparkinesis.monitor.lags import lag_client
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.kpl.hash_filter import is_kpls, keep
from sparkinesis.stream.kpl.magic import MAX_SIZE, is_aggregated
from sparkinesis.stream.kpl.objects import make_objects
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Record
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.following import is_at_tip
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard, hash_key

SINCE_MS = 3_600_000
"""The age of the oldest records that are read."""
_MOST_SHARDS = 100
_MOST_CALLS = 5
"""The most pages of a shard that are read: a page may have no record."""
_MOST_DIGESTS = 200_000
"""The most user records among which a repeat is found."""
_NEAR_LIMIT = MAX_SIZE - 10_240
"""The size from which an aggregate is nearly full."""
_A_SAMPLE = 100
"""The least aggregated user records that say something about all keys."""


class _User(NamedTuple):
    """What is looked at of a user record."""

    data: bytes
    key: str | None
    hash_key: str | None


def _user(
    data: bytes, key: str | None, _seq: str, _sub: int, _at: object, hash_key: str | None, _: str
) -> _User:
    return _User(data, key, hash_key)


@dataclass
class Oddities:
    """What of a sample's records a producer should not write, and what a reader may lose."""

    malformed: int = 0
    """Records that begin like an aggregate, and are none."""
    full: int = 0
    """Aggregates that are nearly as large as one may be."""
    elsewhere: int = 0
    """Aggregates, but those of a KPL, with a user record whose hash key is another shard's."""
    dropped_by_kcl: int = 0
    """Their user records."""
    moved: int = 0
    """User records that ``hash_range_filter`` drops."""
    without_key: int = 0
    """User records in aggregates whose partition key is empty."""
    wrong_hash_keys: int = 0
    """User records whose explicit hash key is not one of the hash keys of shards."""
    repeated: int = 0
    """User records whose key and data came before."""


@dataclass
class RecordSample:
    """What the records of a sample show."""

    shards: int = 0
    of_shards: int = 0
    records: int = 0
    aggregates: int = 0
    packed: int = 0
    """User records in aggregates."""
    odd: Oddities = field(default_factory=Oddities)
    keys: set[str | None] = field(default_factory=set)
    """The first two keys of user records in aggregates."""
    outer_keys: set[str | None] = field(default_factory=set)
    """The first two keys of aggregates."""
    _digests: set[bytes] = field(default_factory=set)

    def add(self, records: Sequence[Record], shard: Shard) -> None:
        """Look at records of a shard."""
        for record in records:
            users, _ = make_objects([record], _user, shard.id)
            self.records += 1
            for user in users:
                self._look_for_repeat(user)
            if is_aggregated(record.data):
                self._add_aggregate(record, users, shard)

    def _add_aggregate(self, record: Record, users: Sequence[_User], shard: Shard) -> None:
        if users[0].data == record.data:
            self.odd.malformed += 1
            return
        self.aggregates += 1
        self.packed += len(users)
        self.odd.full += len(record.data) >= _NEAR_LIMIT
        if len(self.outer_keys) < 2:
            self.outer_keys.add(record.partition_key)
        for user in users:
            self.odd.without_key += not user.key
            if len(self.keys) < 2:
                self.keys.add(user.key)
        places = [_hash_key(user) for user in users]
        self.odd.wrong_hash_keys += places.count(None)
        if shard.hash_range is None:
            return
        first, last = shard.hash_range
        keys = [(user.key or "", user.hash_key) for user in users]
        if is_kpls(record, keys, shard.hash_range):
            self.odd.moved += keep(record, keys, shard.hash_range).count(False)
        elif any(place is not None and not first <= place <= last for place in places):
            self.odd.elsewhere += 1
            self.odd.dropped_by_kcl += len(users)

    def _look_for_repeat(self, user: _User) -> None:
        key = (user.key or "").encode()
        digest = hashlib.blake2b(b"%d %b %b" % (len(key), key, user.data), digest_size=16).digest()
        if digest in self._digests:
            self.odd.repeated += 1
        elif len(self._digests) < _MOST_DIGESTS:
            self._digests.add(digest)


def _hash_key(user: _User) -> int | None:
    """Return the hash key of a user record; None if the explicit one is none."""
    try:
        place = hash_key(user.key or "", user.hash_key)
    except ValueError:
        return None
    return place if 0 <= place <= MAX_HASH_KEY else None


def record_checks(address: StreamAddress, most: int) -> Iterator[Finding]:
    """Read up to ``most`` records of the last hour, and yield what their producers do to them."""
    check = f"records {address.name}"
    try:
        sample = _read(lag_client(address, give_up_after=5.0), most)
    except SparkinesisError as error:
        yield problem_of(check, error)
        return
    yield from findings(check, sample)


def _read(client: StreamClient, most: int) -> RecordSample:
    """Read about as many records of each shard, from an hour ago."""
    since = AtTimestamp(max(0, client.wall_clock_ms() - SINCE_MS))
    shards, _ = client.list_shards(since=since)
    chosen = shards[-_MOST_SHARDS:]
    sample = RecordSample(shards=len(chosen), of_shards=len(shards))
    for number, shard in enumerate(chosen):
        left = ceil((most - sample.records) / (len(chosen) - number))
        cursor = ShardCursor(client, ShardBudget(Pace()), shard.id, since)
        for _ in range(_MOST_CALLS):
            if left <= 0 or cursor.at_end:
                break
            fetched = cursor.fetch(min(left, MAX_RECORDS_PER_CALL))
            sample.add(fetched.page.records, shard)
            left -= len(fetched.page.records)
            if is_at_tip(fetched):
                break
    return sample


def findings(check: str, sample: RecordSample) -> Iterator[Finding]:
    """Yield what a sample shows. Pure."""
    where = counted(sample.shards, "shard")
    if sample.shards < sample.of_shards:
        where += f" of {sample.of_shards}"
    what = f"read {counted(sample.records, 'record')} of {where}, of the last hour"
    if sample.aggregates:
        what += f"; {counted(sample.aggregates, 'aggregate')} of {sample.packed:,} user records"
    found = [*_losses(check, sample), *_keys(check, sample)]
    yield ok(check, f"{what}; nothing is wrong with them" if sample.records and not found else what)
    yield from found


def _losses(check: str, sample: RecordSample) -> Iterator[Finding]:
    if sample.odd.elsewhere:
        yield note(
            check,
            f"aggregates with keys of other shards: {sample.odd.elsewhere:,}, of "
            f"{counted(sample.odd.dropped_by_kcl, 'user record')}, which a Java KCL drops without "
            "a word",
            "Nothing is dropped here. If a KCL reads the stream, too, have the producer pack for "
            "each shard, or put its records plain: see docs/what-producers-write.md.",
        )
    if sample.odd.moved:
        yield note(
            check,
            f"user records of other shards, in aggregates of a KPL: {sample.odd.moved:,}. After a "
            "reshard, the KPL puts them again, so that they come twice",
            "The option hash_range_filter drops the first of the two.",
        )
    if sample.odd.malformed:
        yield note(
            check,
            f"records that begin like an aggregate, and are none: {sample.odd.malformed:,}. Each "
            "comes as it is, as one record",
            "Their producer cut or changed them, or is no aggregator: look at them with "
            "`sparkinesis tail --json`.",
        )
    if sample.odd.full:
        yield note(
            check,
            f"aggregates within {(MAX_SIZE - _NEAR_LIMIT) >> 10} KiB of the limit of 1 MiB, where "
            f"some producers lose user records: {sample.odd.full:,}",
            "aws-kinesis-agg of PyPI drops a record that fills an aggregate to the last 20 bytes, "
            "and that of npm makes aggregates that the service refuses: set a smaller size there.",
        )
    if sample.odd.repeated:
        yield note(
            check,
            f"user records with the key and the data of an earlier one: {sample.odd.repeated:,}. A "
            "producer repeats calls, or they are alike",
            "`sparkinesis tail --check-order FIELD` names them, if the data has a counter or a "
            "time.",
        )


def _keys(check: str, sample: RecordSample) -> Iterator[Finding]:
    wrong = {
        "without a partition key": sample.odd.without_key,
        "with an explicit hash key that no shard has": sample.odd.wrong_hash_keys,
    }
    texts = [f"{text}: {count:,}" for text, count in wrong.items() if count]
    if texts:
        yield note(
            check,
            f"user records in aggregates {listed(texts)}",
            "They come as they are. Their producer sets them: group by a field of the data.",
        )
    if sample.packed >= _A_SAMPLE and len(sample.keys) == 1 < len(sample.outer_keys):
        (key,) = sample.keys
        yield note(
            check,
            f"all user records in aggregates have the key {key!r}, and their aggregates others: "
            "the producer keeps no keys",
            "Group by a field of the data: see docs/what-producers-write.md.",
        )
