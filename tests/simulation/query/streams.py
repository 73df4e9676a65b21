"""The streams of a world, and what was put into them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkinesis.local import LocalKinesis
from sparkinesis.local.faults import Call, Fault
from sparkinesis.local.shard import Shard
from sparkinesis.local.stream import Stream
from sparkinesis.stream.aggregation import aggregate
from tests.simulation.kinesis import REGION
from tests.simulation.query.checkpoint import Row, RowId
from tests.simulation.query.history import STREAMS, Merge, Put, Split

LARGEST_AGGREGATE = 8
"""User records."""


@dataclass
class Streams:
    kinesis: LocalKinesis
    shards: tuple[int, ...]
    user_records: list[Row] = field(default_factory=list)
    """What was put, in order: by user record, and as it was stored."""
    records: list[Row] = field(default_factory=list)
    closed_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """By stream and shard, when it was closed; also of those that are listed no more."""

    def __post_init__(self) -> None:
        self._counts: dict[str, int] = {}
        for name, shards in zip(STREAMS, self.shards, strict=False):
            self.kinesis.call("CreateStream", StreamName=name, ShardCount=shards)

    def of(self, number: int) -> Stream:
        """Of those that there are, one for any number."""
        name = STREAMS[number % len(self.shards)]
        return self.kinesis._regions[REGION].streams[name]

    def all_shards(self, name: str) -> list[Shard]:
        """Those that are still listed."""
        return self.kinesis._regions[REGION].streams[name].shards

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
        for sub, one in enumerate(held):
            self.user_records.append(Row(RowId(stream, shard, number, sub), key, one, arrival_ms))

    def split(self, event: Split) -> None:
        stream = self.of(event.stream)
        index, shards = _shard_at(stream, event.place)
        shard = shards[index]
        middle = (shard.hash_start + shard.hash_end + 1) // 2
        if middle > shard.hash_start:
            stream.split(shard, middle, self.kinesis.clock())
            self._note_closed(stream, shard)

    def merge(self, event: Merge) -> None:
        stream = self.of(event.stream)
        index, shards = _shard_at(stream, event.place)
        if index + 1 < len(shards):
            stream.merge(shards[index], shards[index + 1], self.kinesis.clock())
            self._note_closed(stream, shards[index], shards[index + 1])

    def _note_closed(self, stream: Stream, *shards: Shard) -> None:
        now_ms = self.kinesis.clock()
        self.closed_ms.update({(stream.name, shard.id): now_ms for shard in shards})


def _shard_at(stream: Stream, place: float) -> tuple[int, list[Shard]]:
    shards = stream.open_shards
    return min(int(place * len(shards)), len(shards) - 1), shards
