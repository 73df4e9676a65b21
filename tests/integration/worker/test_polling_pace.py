"""The pace at which a worker polls a shard is an option, and no call is made before its time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.retrieval.ahead import FetchRequest
from sparkinesis.worker.retrieval.memory import WHOLE_PAGE, Account, MemoryBudget
from sparkinesis.worker.retrieval.polling import PolledShard, Polling
from sparkinesis.worker.retrieval.step_pool import StepPool
from tests.streams import put

SHARD = "shardId-000000000000"
START_MS = 1_790_000_000_000
COUNT = 12


class Reader:
    """Polls the only shard of a stream in virtual time, as a worker with these options does."""

    def __init__(self, options: dict[str, Any], *, limits: bool = True, size: int = 5) -> None:
        self._clock = ManualClock(START_MS)
        self._server = LocalServer(port=0, clock=self._clock, limits=limits)
        self._size = size
        timing = Timing(
            clock=lambda: (self._clock() - START_MS) / 1000,
            sleep=lambda seconds: (self._clock.advance(math.ceil(1000 * seconds - 1e-6)), None)[1],
            wall_clock_ms=self._clock,
        )
        self._timing = timing
        self._options = WorkerOptions(idle_time=0, max_records=1, **options)

    def __enter__(self) -> Reader:
        self._server.__enter__()
        kinesis = self._server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        self._clock.advance(1000)
        for number in range(COUNT):
            put(kinesis, "s", [b"%03d" % number + bytes(self._size)], "k")
            self._clock.advance(1000)
        address = StreamAddress("s", region="us-east-1", endpoint=self._server.endpoint_url)
        client = StreamClient(address)
        self._polling = Polling(client, self._options, self._timing)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(None, None, None)

    def shard(self) -> PolledShard:
        memory, pool = Account(MemoryBudget(2**30)), StepPool("test")
        return self._polling.source(
            FetchRequest(
                SHARD,
                TRIM_HORIZON,
                inclusive=True,
                memory=memory,
                taker=pool.new_work(lambda: None),
                pool=pool,
            )
        )

    def read(self) -> list[bytes]:
        """Fetch every record, each by a call of its own."""
        shard, found = self.shard(), list[bytes]()
        for _ in range(COUNT):
            fetched = shard.fetch(WHOLE_PAGE)
            assert fetched is not None
            found += [record.data for record in fetched.page.records]
        return found

    def times(self, operation: str = "GetRecords") -> list[int]:
        """The milliseconds at which the service took its calls; it has refused none."""
        calls = self._server.kinesis.calls.select(operation, shard=SHARD)
        assert [call.error for call in calls] == [None] * len(calls)
        return [call.time_ms for call in calls]

    def gaps(self, operation: str = "GetRecords") -> list[int]:
        return [later - earlier for earlier, later in itertools.pairwise(self.times(operation))]


@pytest.mark.parametrize(
    ("options", "gap"),
    [
        ({}, 250),
        ({"shard_calls_per_second": 5}, 200),
        ({"shard_calls_per_second": 0.5}, 2000),
        ({"shard_calls_per_second": 5, "shard_bytes_per_second": "unlimited"}, 200),
    ],
    ids=["default", "all-calls", "one-in-two-seconds", "unlimited-bytes"],
)
def test_calls_on_a_shard_are_as_far_apart_as_the_option_says(
    options: dict[str, Any], gap: int
) -> None:
    """Behind the tip, where nothing else keeps them apart, and within the service's limits."""
    with Reader(options) as reader:
        found = reader.read()
        assert [data[:3] for data in found] == [b"%03d" % number for number in range(COUNT)]
        assert reader.gaps() == pytest.approx([gap] * (COUNT - 1), abs=1)


def test_a_shard_is_polled_by_the_options() -> None:
    with Reader({}) as reader:
        shard = reader.shard()
        assert (shard._idle_time, shard._most) == (0, 1)


@pytest.mark.parametrize(
    ("options", "size", "most"),
    [
        # Five bytes use up microseconds of the budget of bytes, which no option has changed.
        ({}, 5, 1),
        ({"shard_bytes_per_second": "unlimited"}, 900_000, 0),
    ],
    ids=["calls", "bytes"],
)
def test_a_local_kinesis_without_limits_is_called_without_a_pause(
    options: dict[str, Any], size: int, most: int
) -> None:
    options = {**options, "shard_calls_per_second": "unlimited"}
    with Reader(options, limits=False, size=size) as reader:
        assert len(reader.read()) == COUNT
        assert max(reader.gaps()) <= most


def test_iterators_are_asked_for_at_the_same_pace() -> None:
    with Reader({"shard_calls_per_second": 0.5}) as reader:
        for _ in range(4):
            reader.shard().fetch(WHOLE_PAGE)
        assert len(reader.gaps("GetShardIterator")) == 3
        assert min(reader.gaps("GetShardIterator")) >= 2000


@pytest.mark.parametrize(
    ("option", "gap"), [({}, 450), ({"shard_bytes_per_second": 300_000}, 3000)], ids=str
)
def test_large_pages_are_as_far_apart_as_their_bytes(option: dict[str, Any], gap: int) -> None:
    with Reader({**option, "shard_calls_per_second": 5}, size=900_000) as reader:
        reader.read()
        assert reader.gaps() == pytest.approx([gap] * (COUNT - 1), abs=2)
