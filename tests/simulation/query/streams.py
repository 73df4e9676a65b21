"""The streams of a world, and what was put into them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkinesis.local import LocalKinesis
from sparkinesis.local.faults import Call, Fault
from sparkinesis.local.model.shard_log import Shard
from sparkinesis.local.model.stream import Stream
from sparkinesis.stream.kpl.pack import aggregate
from tests.simulation.kinesis import REGION
from tests.simulation.query.checkpoint import Row, RowId
from tests.simulation.query.history import STREAMS, Merge, Put, Recreate, Retention, Split
from tests.simulation.query.lives import RETENTION_HOURS, Life

LARGEST_AGGREGATE = 8
"""User records."""


@dataclass
class Streams:
    kinesis: LocalKinesis
    shards: tuple[int, ...]
    user_records: list[Row] = field(default_factory=list)
    """The user records in the order of their puts; `records` holds them as stored."""
    records: list[Row] = field(default_factory=list)
    closed_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """The time at which each shard was closed, by stream and shard; unlisted shards included."""
    lives: dict[str, list[Life]] = field(default_factory=dict)
    """The streams that had a name, one after the other, by name."""

    def __post_init__(self) -> None:
        self._counts: dict[str, int] = {}
        for name, shards in zip(STREAMS, self.shards, strict=False):
            self.lives[name] = []
            self._create(name, shards)

    def _create(self, name: str, shards: int) -> None:
        self.kinesis.call("CreateStream", StreamName=name, ShardCount=shards)
        life = Life(self.kinesis.clock())
        self.lives[name].append(life)
        self._note_shards(name)

    def life_of(self, row: RowId) -> Life:
        """The stream that a row was put into, of those that had the name."""
        return next(life for life in self.lives[row.stream] if row in life.put_ms)

    def of(self, number: int) -> Stream:
        """Returns one of the existing streams for any number."""
        name = STREAMS[number % len(self.shards)]
        return self.kinesis._regions[REGION].streams[name]

    def all_shards(self, name: str) -> list[Shard]:
        """The shards that are still listed."""
        return self.kinesis._regions[REGION].streams[name].shards

    def happen(self, event: Put | Split | Merge | Retention | Recreate) -> None:
        match event:
            case Put():
                self.put(event)
            case Split():
                self.split(event)
            case Merge():
                self.merge(event)
            case Retention():
                self.set_retention(event)
            case Recreate():
                self.recreate(event)

    def put(self, event: Put) -> None:
        stream = self.of(event.stream).name
        key = f"k{event.key}"
        data = []
        for _ in range(event.count):
            name = f"{stream}/{key}"
            count = self._counts[name] = self._counts.get(name, 0) + 1
            data.append(f"{name}:{count}".encode())
        skew_ms = round(event.skew * 1000)
        arrival_ms = self.kinesis.clock() + skew_ms

        def skewed(call: Call) -> Fault:
            return Fault(arrival_skew_ms=skew_ms)

        self.kinesis.faults = skewed
        if event.aggregated:
            packed = data[:LARGEST_AGGREGATE]
            (blob,) = aggregate([(key, None, one) for one in packed])
            self._put(stream, key, blob.data, packed, arrival_ms)
        else:
            for one in data:
                self._put(stream, key, one, [one], arrival_ms)
        self.kinesis.faults = None

    def _put(
        self, stream: str, key: str, stored: bytes, held: list[bytes], arrival_ms: int
    ) -> None:
        answer = self.kinesis.call("PutRecord", StreamName=stream, Data=stored, PartitionKey=key)
        shard, number = answer["ShardId"], answer["SequenceNumber"]
        self.records.append(Row(RowId(stream, shard, number, 0), key, stored, arrival_ms))
        life = self.lives[stream][-1]
        for sub, one in enumerate(held):
            row = Row(RowId(stream, shard, number, sub), key, one, arrival_ms)
            self.user_records.append(row)
            life.put_ms[row.id] = self.kinesis.clock()

    def split(self, event: Split) -> None:
        stream = self.of(event.stream)
        index, shards = _shard_at(stream, event.place)
        shard = shards[index]
        middle = (shard.hash_start + shard.hash_end + 1) // 2
        if middle > shard.hash_start:
            stream.key_space.split(shard, middle, self.kinesis.clock())
            self._note_closed(stream, shard)

    def merge(self, event: Merge) -> None:
        stream = self.of(event.stream)
        index, shards = _shard_at(stream, event.place)
        if index + 1 < len(shards):
            stream.key_space.merge(shards[index], shards[index + 1], self.kinesis.clock())
            self._note_closed(stream, shards[index], shards[index + 1])

    def set_retention(self, event: Retention) -> None:
        stream = self.of(event.stream)
        stream.set_retention(event.hours, self.kinesis.clock())
        self.lives[stream.name][-1].retention.append((self.kinesis.clock(), event.hours))

    def recreate(self, event: Recreate) -> None:
        stream = self.of(event.stream)
        hours, shards = stream.retention.hours, len(stream.open_shards)
        self.kinesis.call("DeleteStream", StreamName=stream.name, EnforceConsumerDeletion=True)
        self.lives[stream.name][-1].deleted_ms = self.kinesis.clock()
        self._create(stream.name, shards)
        if hours != RETENTION_HOURS:
            self.set_retention(Retention(hours, event.stream))

    def _note_closed(self, stream: Stream, *shards: Shard) -> None:
        now_ms = self.kinesis.clock()
        self.closed_ms.update({(stream.name, shard.id): now_ms for shard in shards})
        self._note_shards(stream.name)

    def _note_shards(self, name: str) -> None:
        life = self.lives[name][-1]
        life.parents.update({shard.id: shard.parents for shard in self.all_shards(name)})


def _shard_at(stream: Stream, place: float) -> tuple[int, list[Shard]]:
    shards = stream.open_shards
    return min(int(place * len(shards)), len(shards) - 1), shards
