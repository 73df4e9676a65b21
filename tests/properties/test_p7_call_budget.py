"""P7: at most 5 GetRecords and 5 GetShardIterator calls a second per shard, all together."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from sparkinesis.local import LocalServer
from tests.engine import MODES, query_of
from tests.streams import put, split

SMALL = [200]


@pytest.fixture
def server() -> LocalServer:
    """With the service's limits, on the real clock."""
    return LocalServer(port=0, limits=True)


@pytest.mark.parametrize(
    ("mode", "period", "limits", "sizes"),
    [
        ("polling", "1s", {}, SMALL),
        ("polling", "200ms", {}, SMALL),
        ("polling", "200ms", {}, [700]),
        ("polling", "200ms", {}, [5000, *29 * SMALL]),
        ("polling", "200ms", {"maxRecordsPerTrigger": "300"}, SMALL),
        ("efo", "200ms", {}, SMALL),
        ("efo", "200ms", {"maxRecordsPerTrigger": "300"}, SMALL),
    ],
    ids=[
        "polling-1s",
        "polling-200ms",
        "polling-fetched",
        "polling-fetched-now-and-then",
        "polling-planned-ahead",
        "efo-200ms",
        "efo-planned-ahead",
    ],
)
def test_p7_planner_and_readers_together_stay_within_the_shards_limits(
    server: LocalServer, mode: str, period: str, limits: dict[str, str], sizes: Sequence[int]
) -> None:
    """Readers follow planners without the pauses that Spark makes: the worst that can happen.

    With enhanced fan-out, most ranges come within five seconds of a subscription, and none asks for
    another in vain. With a limit, batches are planned while others are read. ``sizes``: of the
    records of each call in turn; the planner hands the tasks those of small calls.
    """
    with server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=2)
        options = {"minFetchPeriod": period, "shardCallsPerSecond": "5", **MODES[mode], **limits}
        query = query_of(server, **options)
        stopping = threading.Event()
        written = 0

        def produce() -> None:
            nonlocal written
            while not stopping.wait(0.05):
                size = sizes[written // 50 % len(sizes)]
                rows = [b"%06d" % n + bytes(size) for n in range(written, written + 50)]
                put(kinesis, "s", rows, f"{written}")
                written += 50

        producer = threading.Thread(target=produce)
        producer.start()
        read = 0
        resharded = ""
        end = time.monotonic() + 4
        while time.monotonic() < end:
            if batch := query.next_batch():
                read += len(batch.rows)
                if read > 100 and not resharded:
                    resharded = split(kinesis, "s")
        stopping.set()
        producer.join()
        read += sum(len(batch.rows) for batch in query.drain())
        calls = server.kinesis.calls
        registering = {"DescribeStreamConsumer"}  # which there is not at first
        assert {call.operation for call in calls if call.error is not None} <= registering
        shards = calls.per_shard("GetRecords")
        assert len(shards) == 4
        for shard in shards:
            assert calls.peak("GetRecords", window_ms=1000, shard=shard) <= 5
            assert calls.peak("GetShardIterator", window_ms=1000, shard=shard) <= 5
            assert calls.peak("SubscribeToShard", window_ms=5000, shard=shard) <= 1
        pushed = sum(call.records for call in calls.select("SubscribeToShardEvent"))
        assert (pushed > 0) == (mode == "efo")
        assert read == written
        assert calls.count("ListShards") <= 4
