"""What a plan tells in the progress: lags, losses, sizes; and that it changes no offset."""

from __future__ import annotations

import json

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator

from sparkinesis.local import Fault
from sparkinesis.source.stream_report import StreamReport, read_reports
from tests.engine import Query
from tests.failing import Failing
from tests.properties.conftest import World
from tests.streams import put, put_at, shard_ids

HOUR = 3_600_000


def report(running: Query, stream: str = "s") -> StreamReport:
    """What the progress tells, by way of JSON."""
    reports = read_reports(json.loads(json.dumps(running.reader.reportLatestOffset())))
    assert reports is not None
    return reports[stream]


def test_each_shard_tells_its_own_lag(world: World) -> None:
    for n in range(10):
        put_at(world.kinesis, "s", b"busy-%d" % n, 0)
        world.clock.advance(60_000)
    running = world.query(maxRecordsPerTrigger="4")
    assert running.next_batch() is not None
    lag = report(running).millis_behind_latest
    assert lag is not None
    busy, idle = shard_ids(world.kinesis, "s")
    assert lag.shards[idle] == 0
    assert lag.shards[busy] == lag.max == pytest.approx(7 * 60_000, abs=1000)
    assert lag.mean == pytest.approx(lag.max / 2, abs=1)


def test_the_sample_has_the_size_of_rows(world: World) -> None:
    put(world.kinesis, "s", [b"%010d" % n for n in range(50)])
    running = world.query()
    assert running.next_batch() is not None
    told = report(running)
    assert told.sample is not None
    assert (told.sample.rows, told.sample.bytes) == (50, 500)
    assert told.plan_millis is not None
    assert running.next_batch() is None
    assert report(running).sample is None, "nothing is left to probe"


@pytest.mark.parametrize("limit", [{}, {"maxRecordsPerTrigger": "100"}], ids=["all", "limited"])
def test_rows_of_aggregates_are_user_records(world: World, limit: dict[str, str]) -> None:
    aggregator = RecordAggregator()
    for n in range(40):
        assert aggregator.add_user_record("k", b"%04d" % n) is None
    _, _, blob = aggregator.clear_and_get().get_contents()
    for _ in range(3):
        put_at(world.kinesis, "s", blob)
    running = world.query(**limit)
    assert running.next_batch() is not None
    told = report(running)
    assert told.sample is not None
    assert told.sample.rows == 120
    assert told.sample.bytes == 3 * len(blob)


def test_the_calls_of_plans_are_told_and_not_those_of_readers(world: World) -> None:
    def calls() -> int:
        return sum(call.operation == "GetRecords" for call in world.server.kinesis.calls)

    put(world.kinesis, "s", [b"%d" % n for n in range(50)])
    running = world.query()
    throttle = Fault.error("ProvisionedThroughputExceededException", "slow down")
    failure = Fault.error("InternalFailure", "oops", status=500)
    world.server.kinesis.faults = Failing("GetRecords", throttle, failure, throttle)
    start, end = running.plan()
    first = calls()
    assert (report(running).probes, report(running).throttled) == (first, 2)
    running.read(start, end)
    running.checkpoint = end
    read = calls()
    put(world.kinesis, "s", [b"more"])
    running.plan()
    assert report(running).probes == first + calls() - read
    assert report(running).throttled == 2


def test_each_stream_tells_its_own_calls(world: World) -> None:
    world.kinesis.create_stream(StreamName="wide", ShardCount=5)
    running = world.query(streamName="s,wide")
    running.plan()
    assert running.next_batch() is not None  # the first one stores the start
    running.plan()
    calls = [call.stream for call in world.server.kinesis.calls if call.operation == "GetRecords"]
    for stream in ("s", "wide"):
        assert report(running, stream).probes == calls.count(stream) > 0


def test_a_shard_that_waits_for_a_later_batch_is_no_range(world: World) -> None:
    for hash_key in (0, 2**128 - 1):
        for n in range(10):
            put_at(world.kinesis, "s", b"%d" % n, hash_key)
        world.clock.advance(60_000)
    running = world.query(maxRecordsPerTrigger="5")
    told = []
    for batch in running.drain():
        tasks = running.reader.partitions(batch.start, batch.end)
        assert report(running).ranges == sum(len(task.to_read) for task in tasks)
        told.append(report(running).ranges)
    assert [ranges for ranges in told if ranges] == [1, 1, 1, 1]


def test_the_share_of_the_limit_that_a_batch_fills_is_told(world: World) -> None:
    for n in range(10):
        put(world.kinesis, "s", [b"%d-%d" % (n, m) for m in range(100)])
        world.clock.advance(1000)
    running = world.query(maxRecordsPerTrigger="400")
    filled = []
    while (batch := running.next_batch()) is not None:
        if batch.rows:  # the first one stores the start
            filled.append((report(running).filled, len(batch.rows) / 400))
    assert [told for told, _ in filled] == pytest.approx([share for _, share in filled], abs=0.01)
    assert filled[0][1] == pytest.approx(1, abs=0.1)
    assert filled[-1][1] == pytest.approx(0.5, abs=0.1)
    assert report(running).filled == 0.0


@pytest.mark.parametrize("options", [{}, {"minRowsPerTrigger": "10"}], ids=["all", "fewest"])
def test_without_a_limit_there_is_no_share(world: World, options: dict[str, str]) -> None:
    put(world.kinesis, "s", [b"%04d" % n for n in range(100)])
    running = world.query(**options)
    assert running.next_batch() is not None
    assert report(running).filled is None


@pytest.mark.parametrize("mode", ["polling", "efo"])
def test_the_loss_of_each_shard_is_counted_once_for_a_run(world: World) -> None:
    running = world.query(failOnDataLoss="false")
    put(world.kinesis, "s", [b"a"], "k")
    assert running.next_batch() is not None
    assert report(running).data_losses == 0
    world.clock.advance(1 * HOUR)
    put(world.kinesis, "s", [b"lost"], "k")
    world.clock.advance(25 * HOUR)
    put(world.kinesis, "s", [b"b"], "k")
    running.restart()
    assert running.next_batch() is not None
    assert report(running).data_losses == 2
    assert running.next_batch() is None
    put(world.kinesis, "s", [b"c"], "k")
    assert running.next_batch() is not None
    assert report(running).data_losses == 2


def test_a_stream_made_anew_is_a_loss(world: World) -> None:
    put(world.kinesis, "s", [b"a"], "k")
    running = world.query(failOnDataLoss="false")
    assert running.next_batch() is not None
    world.kinesis.delete_stream(StreamName="s")
    world.clock.advance(HOUR)
    world.kinesis.create_stream(StreamName="s", ShardCount=2)
    put(world.kinesis, "s", [b"b"], "k")
    running.restart()
    while running.next_batch() is not None:
        pass
    assert report(running).data_losses == 1
