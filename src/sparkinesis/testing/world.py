"""The world of a test: streams, lease tables and a time that the test moves."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from sparkinesis.local.clock import ManualClock
from sparkinesis.local.encoding.requests import capacity
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.wire.server import LocalServer
from sparkinesis.stream.kpl.pack import AggregatedBlob
from sparkinesis.testing.processed import Place, Put
from sparkinesis.testing.quick import REGION

if TYPE_CHECKING:
    from typing_extensions import Self

    from sparkinesis.local.kinesis import LocalKinesis

Given: TypeAlias = bytes | str | tuple[str, bytes | str] | AggregatedBlob | Mapping[str, Any]
"""The data of a record; a pair of partition key and data; an aggregate that
`sparkinesis.aggregate` made; or an entry of PutRecords. Texts are encoded in UTF-8."""

_KEY = "key"
"""The partition key of records that are given without one."""


_KEYS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
_HIDDEN = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")


@contextmanager
def _local_credentials() -> Iterator[None]:
    """Give this process and its children credentials that open nothing, during the block."""
    before = {name: os.environ.get(name) for name in (*_KEYS, *_HIDDEN)}
    os.environ.update(_KEYS)
    for name in _HIDDEN:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


STREAM = "stream"
"""The stream of tests that name none."""


class Follower(Protocol):
    """A run that follows what happens in the world."""

    @property
    def streams(self) -> Sequence[str]:
        """The names of the streams that it reads."""

    def owe(self, put: Put) -> None:
        """Note a record that was put into one of the streams."""

    def before_time(self) -> float:
        """Return the most milliseconds by which the time may be moved now at once."""

    def look_at_time(self) -> None:
        """Note that the time was moved."""


class World:
    """A local Kinesis in this process; `sparkinesis.testing.Sandbox` says how it is used."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        """The time in milliseconds since the epoch, as a function."""
        self.lease_tables = LeaseTables()
        self.puts: list[Put] = []
        """All records that were put by `put`, in order."""
        self.followers: list[Follower] = []
        """The applications that run now."""
        self._server = LocalServer(clock=self.clock, limits=None, lease_tables=self.lease_tables)
        self.service: LocalKinesis = self._server.kinesis
        """The service, within this process: its log of calls, and its faults."""
        self._moved = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(_local_credentials())
        self._stack.enter_context(self._server)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- time

    def time(self) -> float:
        """Return the time in seconds since the epoch: ``clock=kinesis.time`` for a processor."""
        return self.clock() / 1000

    @property
    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.fromtimestamp(self.time(), timezone.utc)

    def monotonic(self) -> float:
        """Return the time of workers: the machine's, and what `advance` has added."""
        return time.monotonic() + self._moved

    def advance(self, seconds: float | timedelta) -> None:
        """Move the time forward; timers of workers that are then due are served at once.

        The time of a queue passes from one event to the next, so that holds are extended on the way
        and what comes again fails, or not, as often as it would.
        """
        moved = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        left = round(moved * 1000)
        while True:
            step = int(min(left, *(one.before_time() for one in self.followers), math.inf))
            # First that of workers: a receive that ends by the service's is sent anew at once.
            self._moved += step / 1000
            self.clock.advance(step)
            for one in self.followers:
                one.look_at_time()
            left -= step
            if left <= 0:
                return

    # --- streams

    @property
    def endpoint(self) -> str:
        """The URL of the local Kinesis, for ``endpoint=`` and ``endpoint_url=``."""
        return self._server.endpoint_url

    def client(self, service: str = "kinesis") -> Any:
        """Return a boto3 client."""
        return self._server.client(service, REGION)

    def create_stream(self, name: str = STREAM, shards: int | Literal["on-demand"] = 1) -> None:
        """Create a stream, if there is none of the name; one for queues has to be on-demand."""
        client = self.client()
        with suppress(client.exceptions.ResourceInUseException):
            client.create_stream(StreamName=name, **capacity(shards))

    def put(self, records: Iterable[Given], stream: str = STREAM) -> list[Place]:
        """Put records, in order; return their places."""
        places: list[Place] = []
        given, client = _entries(records), self.client()
        followers = [one for one in self.followers if stream in one.streams]
        for start in range(0, len(given), 500):
            some = given[start : start + 500]
            answer = client.put_records(StreamName=stream, Records=some)
            for entry, stored in zip(some, answer["Records"], strict=True):
                if "ErrorCode" in stored:
                    raise AssertionError(f"Kinesis refused {entry!r}: {stored['ErrorMessage']}")
                place = Place(stream, stored["ShardId"], stored["SequenceNumber"])
                places.append(place)
                self.puts.append(Put(place, entry, self.clock()))
                for one in followers:
                    one.owe(self.puts[-1])
        return places

    def split(self, stream: str = STREAM) -> None:
        """Split the first open shard in the middle."""
        shard = self._open_shards(stream)[0]
        first, last = (int(bound) for bound in shard["HashKeyRange"].values())
        self.client().split_shard(
            StreamName=stream,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str((first + last) // 2 + 1),
        )

    def merge(self, stream: str = STREAM) -> None:
        """Merge the first two open shards."""
        left, right, *_ = self._open_shards(stream)
        self.client().merge_shards(
            StreamName=stream,
            ShardToMerge=left["ShardId"],
            AdjacentShardToMerge=right["ShardId"],
        )

    def _open_shards(self, stream: str) -> list[dict[str, Any]]:
        shards = self.client().list_shards(StreamName=stream)["Shards"]
        return sorted(
            (one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]),
            key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]),
        )


def _entries(records: Iterable[Given]) -> list[dict[str, Any]]:
    """Return the entries of PutRecords. Raises TypeError for a record in another form."""
    return [_entry(one) for one in records]


def _entry(given: Given) -> dict[str, Any]:
    if isinstance(given, bytes | str):
        return {"Data": _bytes(given), "PartitionKey": _KEY}
    if isinstance(given, AggregatedBlob):
        hash_key = {"ExplicitHashKey": given.explicit_hash_key} if given.explicit_hash_key else {}
        return {"Data": given.data, "PartitionKey": given.partition_key, **hash_key}
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return {"Data": _bytes(given[1]), "PartitionKey": given[0]}
    raise TypeError(
        f"{given!r} is no record. Give its data, a pair of partition key and data, an aggregate, "
        "or an entry of PutRecords."
    )


def _bytes(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"the data of a record is {data!r}; it must be bytes or a text.")
