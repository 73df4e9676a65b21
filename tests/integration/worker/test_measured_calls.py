"""The metrics of a worker's calls, compared with what the local server itself has counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.metrics.catalogue import (
    BYTES_FETCHED,
    CALL_DURATION,
    CALL_RETRIES,
    LEASES_CREATED,
    RECORDS_FETCHED,
    RENEWAL_DURATION,
    SHARD_SYNC_DURATION,
    SUBSCRIPTIONS_ENDED,
    TABLE_CALL_DURATION,
    TAKE_DURATION,
)
from sparkinesis.metrics.tally import Tally
from tests import pace
from tests.integration.worker.scene import Scene
from tests.pace import eventually
from tests.tallies import Tallied, counted

RETRIEVALS = ("polling", "efo")


def fetched_of(server: LocalServer, stream: str) -> tuple[int, int]:
    """The records and bytes that the server has handed out to readers of the stream."""
    calls = [
        call
        for operation in ("GetRecords", "SubscribeToShardEvent")
        for call in server.kinesis.calls.select(operation, stream=stream)
    ]
    return sum(call.records for call in calls), sum(call.bytes for call in calls)


def put_over_shards(scene: Scene, datas: list[bytes]) -> None:
    """Put records with keys of one length, by which the size of a page is estimated."""
    entries = [{"Data": data, "PartitionKey": data[:3].decode()} for data in datas]
    answer = scene.kinesis.put_records(StreamName=scene.stream, Records=entries)
    assert answer["FailedRecordCount"] == 0


def by_operation(tally: Tally, metric: Any, place: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for labels, number in counted(tally, metric).items():
        found[labels[place]] += int(number)
    return found


def test_what_is_counted_is_what_the_server_has_answered(scene: Scene, tallied: Tallied) -> None:
    """Each record, each call and each lease, over a reshard; once the worker has ended."""
    tally, calls = tallied.tally, scene.server.kinesis.calls
    by_the_test = Counter(call.operation for call in calls.select(stream=scene.stream))
    by_the_test += Counter(PutRecords=2, ListShards=1, SplitShard=1)
    worker = scene.start({"metrics": (tallied,), "max_records": 60})
    expected = [b"%03d" % n + b"x" * (n % 200) for n in range(300)]
    put_over_shards(scene, expected[:200])
    scene.journal.wait_for_data(*expected[:200])
    scene.split()
    put_over_shards(scene, expected[200:])
    scene.journal.wait_for_data(*expected)
    assert worker.shutdown(pace.seconds(30.0))

    def made() -> Counter[str]:
        found = by_operation(tally, CALL_DURATION, 1) + by_operation(tally, TABLE_CALL_DURATION, 0)
        del found["BatchExecuteStatement"]  # the server's log does not name its table
        return found

    def answered() -> Counter[str]:
        found = Counter(call.operation for call in calls.select(stream=scene.stream)) - by_the_test
        del found["SubscribeToShardEvent"]
        return found

    # A call may be under way in a thread that fetches while the worker ends.
    eventually(lambda: made() == answered())
    records, size = fetched_of(scene.server, scene.stream)
    assert records >= 300
    assert counted(tally, RECORDS_FETCHED) == {(scene.stream,): records}
    assert counted(tally, BYTES_FETCHED)[scene.stream,] == pytest.approx(size, rel=0.05)
    assert counted(tally, LEASES_CREATED) == {(scene.stream,): 4}
    for rounds in (TAKE_DURATION, RENEWAL_DURATION, SHARD_SYNC_DURATION):
        assert {labels[-1] for labels in counted(tally, rounds)} == {"ok"}
    ended = by_operation(tally, SUBSCRIPTIONS_ENDED, 1)
    assert sum(ended.values()) == made()["SubscribeToShard"]
    assert counted(tally, CALL_RETRIES).keys() <= {(scene.stream, "SubscribeToShard", "retryable")}
