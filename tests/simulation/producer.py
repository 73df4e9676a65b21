"""Puts records, splits and merges shards, and records what it did."""

from __future__ import annotations

import random
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkinesis.local import LocalKinesis
from sparkinesis.local.faults import Call, Fault
from sparkinesis.local.model.shard_log import Shard
from sparkinesis.local.model.stream import BY_PARTITION_KEY, HASH_SPACE, Stream
from sparkinesis.stream.kpl.pack import aggregate
from tests.simulation.history import Merge, Put, Retention, Split, Storm
from tests.simulation.journal import Place
from tests.simulation.scheduler import Scheduler

STREAM = "flights"

StreamEvent: TypeAlias = Put | Split | Merge | Storm | Retention
HAPPENS_TO_THE_STREAM = (Put, Split, Merge, Storm, Retention)


def key_of(data: str) -> str | None:
    """The partition key of a record, by its data; None: it was put without one."""
    key = data.rpartition(":")[0]
    return None if key == "no key" else key


@dataclass
class ShardLog:
    """The user records of one shard, in order."""

    places: list[Place] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    """The arrival times that readers see (epoch ms)."""
    put_at: list[float] = field(default_factory=list)
    """Virtual seconds."""
    index: dict[Place, int] = field(default_factory=dict)

    def add(self, place: Place, data: str, arrival_ms: int, put_at: float) -> None:
        self.index[place] = len(self.places)
        self.places.append(place)
        self.data.append(data)
        self.arrivals.append(arrival_ms)
        self.put_at.append(put_at)


class Producer:
    """Writes one stream.

    ``jitter``: maximum of seconds by which an arrival time is too early. ``tag``: what the data of
    each record begins with.
    """

    def __init__(
        self,
        kinesis: LocalKinesis,
        scheduler: Scheduler,
        shards: int,
        jitter: float,
        *,
        name: str = STREAM,
        tag: str = "",
    ) -> None:
        self.logs: dict[str, ShardLog] = {}
        """The records of each shard, by shard."""
        self.keys: dict[str, list[str]] = {}
        """The data of each partition key's records in order, by key."""
        self.unordered: set[str] = set()
        """The keys whose records go to any shard, in no order."""
        self.where: dict[str, tuple[str, int]] = {}
        """The shard of each record and the index in the shard's log, by the record's data."""
        self.shards: dict[str, Shard] = {}
        """All shards that ever existed, expired ones included."""
        self._kinesis = kinesis
        self._scheduler = scheduler
        self._rng = random.Random(scheduler.rng.getrandbits(32))
        self._jitter_ms = round(jitter * 1000)
        self._skew_ms = 0
        self._otherwise = kinesis.faults
        if jitter:
            kinesis.faults = self._arrive_early
        self.is_gone = False
        """True once the stream is deleted."""
        self._name = name
        self._tag = tag
        kinesis.call("CreateStream", StreamName=name, ShardCount=shards)
        (region,) = kinesis._regions.values()
        self.stream: Stream = region.streams[name]
        self._retentions = [(0, self.stream.retention.hours)]
        """The retention periods: start (epoch ms) and hours."""
        self._note_shards()

    def _arrive_early(self, call: Call) -> Fault | None:
        if call.operation == "PutRecord":
            return Fault(arrival_skew_ms=self._skew_ms)
        return self._otherwise(call) if self._otherwise is not None else None

    def put(self, event: Put) -> None:
        for _ in range(event.count):
            if event.key is None:
                self._put("no key", event.packed, has_key=False)
            elif event.hash_key is not None and not event.packed:
                place = round(event.hash_key * (HASH_SPACE - 1))
                self._put(f"x{event.key}", 0, str(place))
            else:
                self._put(f"k{event.key}", event.packed)

    def put_marks(self, among: Container[str] | None = None) -> dict[str, str]:
        """A record into each open shard, or into those of them; their data by shard."""
        marks = {}
        for shard in self.stream.open_shards:
            if among is None or shard.id in among:
                (marks[shard.id],) = self._put("mark", 0, str(shard.hash_start))
        return marks

    def _put(
        self, key: str, packed: int, explicit_hash_key: str | None = None, *, has_key: bool = True
    ) -> list[str]:
        if explicit_hash_key is not None or not has_key:
            self.unordered.add(key)
        written = self.keys.setdefault(key, [])
        datas = [f"{self._tag}{key}:{len(written) + n}" for n in range(packed or 1)]
        blob = datas[0].encode()
        if packed:
            (blob,) = [each.data for each in aggregate((key, None, d.encode()) for d in datas)]
        self._skew_ms = -self._rng.randint(0, self._jitter_ms) if self._jitter_ms else 0
        request: dict[str, Any] = {"StreamName": self._name, "Data": blob}
        if has_key:
            request["PartitionKey"] = key
        self.stream.settings.distribution = BY_PARTITION_KEY if has_key else "AUTO"
        if explicit_hash_key is not None:
            request["ExplicitHashKey"] = explicit_hash_key
        answer = self._kinesis.call("PutRecord", **request)
        shard, number = answer["ShardId"], answer["SequenceNumber"]
        log = self.logs.setdefault(shard, ShardLog())
        for sub, data in enumerate(datas):
            self.where[data] = (shard, len(log.places))
            arrival_ms = self._kinesis.clock() + self._skew_ms
            log.add((number, sub), data, arrival_ms, self._scheduler.now)
        written += datas
        return datas

    def happen(self, event: StreamEvent) -> None:
        if isinstance(event, Put):
            self.put(event)
        elif isinstance(event, Split):
            self.split(event.place)
        elif isinstance(event, Merge):
            self.merge(event.place)
        elif isinstance(event, Storm):
            self.storm(event)
        else:
            self._set_retention(event.hours)

    # --- retention

    def _set_retention(self, hours: int) -> None:
        now_ms = self._kinesis.clock()
        self._retentions.append((now_ms, hours))
        self.stream.set_retention(hours, now_ms)

    def horizon_ms(self, at_ms: int) -> int:
        """The retention horizon at that time (epoch ms): older records had been removed."""
        ends = [since for since, _ in self._retentions[1:]] + [at_ms]
        return max(
            min(end, at_ms) - hours * 3_600_000
            for (since, hours), end in zip(self._retentions, ends, strict=True)
            if since <= at_ms
        )

    @property
    def first_retention_hours(self) -> int:
        return self._retentions[0][1]

    # --- resharding

    def split(self, place: float) -> None:
        index, shards = self._shard_at(place)
        shard = shards[index]
        middle = (shard.hash_start + shard.hash_end + 1) // 2
        if middle > shard.hash_start:
            self.stream.key_space.split(shard, middle, self._kinesis.clock())
        self._note_shards()

    def merge(self, place: float) -> None:
        index, shards = self._shard_at(place)
        if index + 1 < len(shards):
            self.stream.key_space.merge(shards[index], shards[index + 1], self._kinesis.clock())
        self._note_shards()

    def storm(self, event: Storm) -> None:
        for n in range(event.reshards):
            self._scheduler.at(
                self._scheduler.now + event.seconds * n / event.reshards,
                lambda: self._reshard(event.most),
            )

    def _reshard(self, most: int) -> None:
        if self.is_gone:
            return
        splits = len(self.stream.open_shards) < most and self._rng.random() < 0.6
        change: Callable[[float], None] = self.split if splits else self.merge
        change(self._rng.random())

    def _shard_at(self, place: float) -> tuple[int, list[Shard]]:
        shards = self.stream.open_shards
        return min(int(place * len(shards)), len(shards) - 1), shards

    def _note_shards(self) -> None:
        self.shards.update((shard.id, shard) for shard in self.stream.shards)
