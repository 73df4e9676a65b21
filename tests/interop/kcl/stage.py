"""The place of a scenario: the local server, three streams, and workers of both kinds."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.shard import hash_key
from tests.interop.judge import Record, Verdict, deliveries_of, judge
from tests.interop.kcl import java
from tests.interop.kcl.repeats import repeats
from tests.interop.kcl.tenures import Place, problems_of
from tests.interop.processes import Processes, settled
from tests.kcl import rows_of
from tests.streams import active_shards, identifier

Stop: TypeAlias = tuple[str, Place]
"""A stream's name, and a place in it: shards of two streams may have the same sequence numbers."""

FAILOVER_MILLIS = 5000
NO_STOP = "-"
"""Of a record."""
_NEVER = "never"
"""Of a worker: it stops at no record."""


@dataclass(kw_only=True)
class Stage(Processes):
    kinesis: Any
    dynamodb: Any
    endpoint: str
    streams: list[str]
    kcl: str = java.KCL
    """The version of the Java workers."""
    put: Counter[str] = field(default_factory=Counter)
    """The number of user records of each key."""
    places: dict[Record, Place] = field(default_factory=dict)
    stops: dict[str, set[Stop]] = field(default_factory=dict)
    """By the name of the stop."""

    # --- streams

    def identifier(self, stream: str) -> str:
        """Return ``<account>:<stream>:<creation epoch>``."""
        return identifier(self.kinesis, stream)

    def tell_streams(self) -> None:
        """Write the file that the Java tracker and our function read."""
        part = self.folder / "streams.part"
        part.write_text("".join(f"{self.identifier(one)}\n" for one in self.streams), "utf-8")
        part.rename(self.folder / "streams")

    def keys(self, stream: str) -> list[str]:
        """Return a key of each open shard, which no record has yet."""
        found = []
        for shard in active_shards(self.kinesis, stream):
            first, last = (
                int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending")
            )
            found.append(
                next(
                    key
                    for number in range(100_000)
                    if first <= hash_key(key := f"{stream}/{number}", None) <= last
                    and key not in self.put
                    and key not in found
                )
            )
        return found

    def put_packed(self, key: str, count: int = 10, stops: dict[int, str] | None = None) -> None:
        """Put an aggregated record. ``stops``: names of stops, by sub-sequence number."""
        (blob,) = aggregate((key, None, data) for data in self._datas(key, count, stops or {}))
        self._put(key, blob.data, count, stops or {})

    def put_plain(self, key: str, stop: str = NO_STOP) -> None:
        stops = {0: stop} if stop != NO_STOP else {}
        (data,) = self._datas(key, 1, stops)
        self._put(key, data, 1, stops)

    def _datas(self, key: str, count: int, stops: dict[int, str]) -> list[bytes]:
        first = self.put[key]
        return [f"{key} {first + at} {stops.get(at, NO_STOP)}".encode() for at in range(count)]

    def _put(self, key: str, data: bytes, count: int, stops: dict[int, str]) -> None:
        stream = key.partition("/")[0]
        answer = self.kinesis.put_record(StreamName=stream, Data=data, PartitionKey=key)
        for at in range(count):
            place = Place(answer["SequenceNumber"], at)
            self.places[key, self.put[key] + at] = place
            if at in stops:
                self.stops.setdefault(stops[at], set()).add((stream, place))
        self.put[key] += count

    # --- workers

    def start_java(
        self,
        name: str,
        application: str,
        *,
        mode: str = "3X",
        former: str = "keep",
        stop: str = _NEVER,
    ) -> None:
        places = (self.endpoint, application, str(self.folder), str(FAILOVER_MILLIS))
        self.start_process(name, java.command(name, *places, mode, former, stop, version=self.kcl))

    def start_ours(
        self,
        name: str,
        application: str,
        *,
        stop: str = _NEVER,
        cleanup: str = "clean",
        balance: str = "count",
        python: str = sys.executable,
    ) -> None:
        places = (self.endpoint, application, str(self.folder), str(FAILOVER_MILLIS))
        module = [python, "-m", "tests.interop.kcl.worker"]
        self.start_process(name, [*module, name, *places, stop, cleanup, balance])

    def rows(self, application: str) -> dict[str, dict[str, Any]]:
        """Return all rows of a lease table, by key."""
        return rows_of(self.dynamodb, application)

    def coordination(self, application: str) -> dict[str, dict[str, Any]]:
        """Return the rows by which a fleet coordinates itself, by key; none without a table.

        A KCL before 3.5 keeps them in two tables beside the lease table.
        """
        found: dict[str, dict[str, Any]] = {}
        try:
            rows = self.rows(application)
            found = {key: row for key, row in rows.items() if "entityType" in row}
            for table, key in (("CoordinatorState", "key"), ("WorkerMetricStats", "wid")):
                found |= rows_of(self.dynamodb, f"{application}-{table}", key)
        except self.dynamodb.exceptions.ResourceNotFoundException:
            pass
        return found

    # --- conclusions

    def has_read(self, reader: str, keys: set[str] | None = None) -> bool:
        """True if the reader was given records, of these keys if any are named."""
        given = {
            key
            for line in self.lines()
            if line["reader"] == reader
            for key, _ in line.get("records", ())
        }
        return bool(given) if keys is None else keys <= given

    def put_until(self, *stops: str) -> Counter[str]:
        """Return the number of user records of each key up to its first stop, that included."""
        places: set[Stop] = set().union(*(self.stops.get(stop, set()) for stop in stops))
        found = Counter(self.put)
        for (key, number), place in self.places.items():
            if (key.partition("/")[0], place) in places:
                found[key] = min(found[key], number + 1)
        return found

    def verdict(self, reader: str | None = None, put: Counter[str] | None = None) -> Verdict:
        """Return the verdict on all records, once nothing comes any more.

        ``reader``: the only one whose lines count. ``put``: what it is to be given, if not all.
        """

        def now() -> Verdict:
            lines = (line for line in self.lines() if reader in {None, line["reader"]})
            return judge(put or self.put, deliveries_of(lines), self.killed)

        return settled(now)

    def repeats(self) -> Mapping[str, int]:
        """Return the number of records that came again so far, by the cause."""
        return repeats(self.lines(), self.killed)

    def problems(self, reader: str | None = None) -> list[str]:
        """Return what readers, or the only one that counts, have done wrong."""
        lines = (line for line in self.lines() if reader in {None, line["reader"]})
        return problems_of(lines, self.places)


@contextmanager
def stage(folder: Path, shards: Sequence[int] = (2, 2, 2), kcl: str = java.KCL) -> Iterator[Stage]:
    """Three streams of so many shards, on a server of their own."""
    folder.mkdir(parents=True)
    with LocalServer(dynamodb=True) as server:
        kinesis = server.client("kinesis")
        streams = ["web", "mobile", "tv"]
        for stream, count in zip(streams, shards, strict=True):
            kinesis.create_stream(StreamName=stream, ShardCount=count)
        found = Stage(
            folder=folder,
            kinesis=kinesis,
            dynamodb=server.client("dynamodb"),
            endpoint=server.endpoint_url,
            streams=streams,
            kcl=kcl,
        )
        found.tell_streams()
        try:
            yield found
        finally:
            found.close()


def remake(on: Stage, stream: str) -> str:
    """Delete a stream and make it anew; return its former identifier."""
    before = on.identifier(stream)
    on.kinesis.delete_stream(StreamName=stream)
    time.sleep(1.0)  # the identifier counts whole seconds
    on.kinesis.create_stream(StreamName=stream, ShardCount=2)
    return before
