"""The world of a test: streams, lease tables, a time that the test moves, and its applications.

An application runs there without the waits of a real one: `quick` makes one with leases, and
`quick_queue` one of a queue, whose waits the test moves.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from sparkinesis.application import Application
from sparkinesis.events import Event
from sparkinesis.local.clock import ManualClock
from sparkinesis.local.encoding.requests import capacity
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.wire.server import LocalServer
from sparkinesis.queue.application import QueueApplication
from sparkinesis.queue.finding import NewQueue
from sparkinesis.stream.address import FOUND_BY_BOTO
from sparkinesis.stream.kpl.pack import AggregatedBlob
from sparkinesis.testing.processed import Place, Put
from sparkinesis.worker.aws_options import LONGEST
from sparkinesis.worker.lifecycle.streams.stream_config import Stream, StreamConfig, StreamTracker
from sparkinesis.worker.on_error import OnError, Retry
from sparkinesis.worker.options import UNLIMITED, WorkerOptions

if TYPE_CHECKING:
    from typing_extensions import Self

    from sparkinesis.local.kinesis import LocalKinesis


REGION = "us-east-1"
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


_SHORT = 0.01
"""Seconds: the wait of whatever waits in a real application."""
_INTERVAL = 0.1
"""Seconds, the least that the options permit."""

_Config = TypeVar("_Config", Application, StreamConfig)


@dataclass(frozen=True, slots=True)
class QuickOptions(WorkerOptions):
    """Options of a worker whose leases never expire, however slow or busy the machine is."""

    def __post_init__(self) -> None:
        # A worker's options are checked again whenever one of them is replaced.
        object.__setattr__(self, "failover_time", _INTERVAL)
        WorkerOptions.__post_init__(self)
        object.__setattr__(self, "failover_time", LONGEST)

    @property
    def renew_interval(self) -> float:
        return _INTERVAL

    @property
    def taker_interval(self) -> float:
        return 2 * _SHORT


def quick(
    application: Application,
    endpoint: str,
    worker_id: str | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> Application:
    """Return an application that reads the local Kinesis at ``endpoint``.

    Metrics, the HTTP address and credentials are left out, and all waits are short. The rest is as
    given.
    """
    given = application.options
    options = QuickOptions(
        **{
            **{one.name: getattr(given, one.name) for one in fields(WorkerOptions)},
            "idle_time": _SHORT,
            "shard_calls_per_second": UNLIMITED,
            "shard_bytes_per_second": UNLIMITED,
            "parent_poll_interval": _SHORT,
            "task_backoff": _SHORT,
            "audit_interval": _INTERVAL,
            "cleanup_interval": _INTERVAL,
            "metrics": (),
            "http": None,
            "on_event": on_event or given.on_event,
        }
    )
    streams = application.streams
    return replace(
        _placed(application, endpoint),
        dynamodb_endpoint=None,
        worker_id=worker_id or application.worker_id,
        options=options,
        streams=partial(_tracked, streams, endpoint)
        if callable(streams)
        else streams and [_stream(one, endpoint) for one in streams],
    )


def quick_queue(application: QueueApplication, endpoint: str, stream: str) -> QueueApplication:
    """Return an application that consumes a queue of the local Kinesis at ``endpoint``.

    Its queue begins with the first record of ``stream``, if none was given. What waits, waits for
    the time of the test.
    """
    new = application.create or NewQueue(stream)
    return replace(
        application,
        queue=_name(application.queue),
        region=REGION,
        endpoint=endpoint,
        credentials=FOUND_BY_BOTO,
        create=replace(
            new,
            stream=_name(new.stream),
            starting_position="trim_horizon",
            stream_endpoint=None,
        ),
        options=replace(application.options, acknowledge_within=0.0, metrics=(), http=None),
    )


def _tracked(streams: StreamTracker, endpoint: str) -> list[Stream]:
    return [_stream(one, endpoint) for one in streams()]


def _stream(stream: Stream, endpoint: str) -> Stream:
    if isinstance(stream, str):
        return _name(stream)
    return _placed(stream, endpoint)


def _name(stream: str) -> str:
    """Return the stream's name, also of an ARN: the local Kinesis has one account and region."""
    return stream.rpartition("/")[2]


def _placed(config: _Config, endpoint: str) -> _Config:
    policy = None if config.on_error is None else _without_waits(config.on_error)
    return replace(
        config,
        stream=config.stream and _name(config.stream),  # an ARN may name another region
        region=REGION,
        endpoint=endpoint,
        credentials=FOUND_BY_BOTO,
        on_error=policy,
    )


def _without_waits(policy: OnError) -> OnError:
    if not isinstance(policy, Retry):
        return policy
    return replace(policy, base=min(policy.base, _SHORT), cap=min(policy.cap, _INTERVAL))
