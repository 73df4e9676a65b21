"""Watching queries: what `sparkinesis.watch` counts is what Spark and the stream say."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import sparkinesis
from sparkinesis import QueryWatch
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.metrics.catalogue import (
    QUERY_BATCH_DURATION,
    QUERY_BYTES,
    QUERY_DATA_LOSS,
    QUERY_FAILURES,
    QUERY_LAG,
    QUERY_LAG_MAX,
    QUERY_LAG_MEAN,
    QUERY_LIMIT_FILLED,
    QUERY_PLANNING_DURATION,
    QUERY_PROBES,
    QUERY_RANGES,
    QUERY_ROWS,
    QUERY_RUNNING,
)
from sparkinesis.metrics.metric import Measured, Metric
from sparkinesis.metrics.tally import Distribution, Tally
from sparkinesis.source.watched_query import kinesis_sources, lags_of
from sparkinesis.status import StreamLag
from tests.pace import eventually
from tests.spark.reading import read_stream
from tests.streams import active_shards, put, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HOUR = 3_600_000
Values = dict[tuple[str, ...], Any]


class Memory:
    """Keeps the metrics of each query that is watched."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}

    def open(self, measured: Measured) -> Tally:
        tally = self.tallies[measured.labels["query"]] = Tally()
        return tally

    def values(self, query: str, metric: Metric) -> Values:
        tally = self.tallies.get(query)
        series = tally.series() if tally is not None else []
        return {one.labels: one.value for one in series if one.metric == metric.name}

    def count(self, query: str, metric: Metric) -> int:
        """The number of values in the histogram of one set of labels."""
        (found,) = self.values(query, metric).values()
        assert isinstance(found, Distribution)
        return found.count


class Scene:
    """A stream on a clock that tests turn, and queries of it with one checkpoint."""

    def __init__(self, spark: SparkSession, server: LocalServer, name: str, folder: str) -> None:
        self.spark = spark
        self.name = name
        self._server = server
        self._checkpoint = folder
        self.kinesis = server.client("kinesis")
        self.started: list[StreamingQuery] = []

    def create(self, shards: int) -> None:
        self.kinesis.create_stream(StreamName=self.name, ShardCount=shards)

    def put(self, *datas: bytes) -> None:
        put(self.kinesis, self.name, list(datas))

    def shards(self) -> set[str]:
        return {shard["ShardId"] for shard in active_shards(self.kinesis, self.name)}

    def run(self, name: str | None = None, **options: str) -> StreamingQuery:
        frame = read_stream(
            self.spark,
            self._server.endpoint_url,
            self.name,
            shardCallsPerSecond="unlimited",
            **options,
        )
        writer = frame.writeStream.format("noop").option("checkpointLocation", self._checkpoint)
        self.started.append((writer if name is None else writer.queryName(name)).start())
        return self.started[-1]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_790_000_000_000)


@pytest.fixture
def scene(
    spark: SparkSession, clock: ManualClock, stream_name: str, checkpoint: str
) -> Iterator[Scene]:
    with LocalServer(port=0, limits=False, clock=clock) as server:
        scene = Scene(spark, server, stream_name, checkpoint)
        yield scene
        for query in scene.started:
            query.stop()


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def watch(spark: SparkSession, memory: Memory) -> Iterator[QueryWatch]:
    with sparkinesis.watch(spark, exporters=(memory,)) as found:
        yield found


def is_read(query: StreamingQuery, rows: int) -> bool:
    return sum(each.numInputRows for each in query.recentProgress) == rows


def test_the_lag_follows_a_producer_that_has_stopped(
    scene: Scene, clock: ManualClock, watch: QueryWatch, memory: Memory
) -> None:
    scene.create(2)
    for step in range(8):
        scene.put(*(b"%d-%03d" % (step, n) for n in range(500)))
        clock.advance(60_000)
    query = scene.run("flights", maxRecordsPerTrigger="1000")
    eventually(lambda: is_read(query, 4000))
    eventually(lambda: memory.values("flights", QUERY_ROWS) == {(scene.name,): 4000})
    progress = [each for each in query.recentProgress if each.numInputRows]
    history = [lags_of(kinesis_sources(each.sources))[scene.name] for each in progress]
    assert 300_000 <= history[0].max_ms <= 480_000, "two of eight minutes are read"
    assert [lag.max_ms for lag in history] == sorted((lag.max_ms for lag in history), reverse=True)
    shards = scene.shards()
    caught_up = StreamLag(0, 0, dict.fromkeys(shards, 0))
    eventually(lambda: sparkinesis.lag(query) == {scene.name: caught_up})
    eventually(lambda: memory.values("flights", QUERY_LAG_MAX) == {(scene.name,): 0})
    assert memory.values("flights", QUERY_LAG) == {(scene.name, shard): 0 for shard in shards}
    assert memory.values("flights", QUERY_LAG_MEAN) == {(scene.name,): 0}
    assert memory.values("flights", QUERY_BYTES) == {(scene.name,): 4000 * 5}
    assert memory.values("flights", QUERY_RUNNING) == {(): 1}
    batches = memory.count("flights", QUERY_BATCH_DURATION)
    assert batches == sum(each.batchId <= progress[-1].batchId for each in query.recentProgress)
    assert memory.count("flights", QUERY_PLANNING_DURATION) <= batches
    (ranges,) = memory.values("flights", QUERY_RANGES).values()
    assert len(progress) <= ranges <= 2 * len(progress)
    assert set(memory.values("flights", QUERY_LIMIT_FILLED)) == {(scene.name,)}
    (probes,) = memory.values("flights", QUERY_PROBES).values()
    # Not all calls are probes: a task fetches the records that its plan does not carry.
    calls = scene._server.kinesis.calls
    assert len(progress) <= probes <= sum(call.operation == "GetRecords" for call in calls)

    # A reshard: the parent's lag goes, the children's come.
    split(scene.kinesis, scene.name)
    scene.put(*(b"after-%d" % n for n in range(40)))
    children = scene.shards()
    assert len(children - set(shards)) == 2
    eventually(lambda: {shard for _, shard in memory.values("flights", QUERY_LAG)} == children)
    eventually(lambda: memory.values("flights", QUERY_ROWS) == {(scene.name,): 4040})
    query.stop()
    eventually(lambda: memory.values("flights", QUERY_RUNNING) == {(): 0})
    assert memory.values("flights", QUERY_LAG) == {}
    assert memory.values("flights", QUERY_FAILURES) == {}, "it was stopped"

    # A restart under the same name counts on.
    scene.put(*(b"again-%d" % n for n in range(10)))
    scene.run("flights")
    eventually(lambda: memory.values("flights", QUERY_ROWS) == {(scene.name,): 4050})
    assert list(memory.tallies) == ["flights"]
    watch.stop()
    assert memory.values("flights", QUERY_RUNNING) == {}


def test_data_loss_is_counted_whether_the_query_goes_on_or_fails(
    scene: Scene, clock: ManualClock, watch: QueryWatch, memory: Memory
) -> None:
    scene.create(1)
    scene.put(b"a")
    query = scene.run()
    name = str(query.id)
    eventually(lambda: memory.values(name, QUERY_ROWS) == {(scene.name,): 1})
    assert memory.values(name, QUERY_DATA_LOSS) == {}
    query.stop()
    clock.advance(HOUR)
    scene.put(b"lost")
    clock.advance(25 * HOUR)
    scene.put(b"b")
    failing = scene.run()
    eventually(lambda: not failing.isActive)
    eventually(lambda: memory.values(name, QUERY_FAILURES) == {("DataLossError",): 1})
    assert memory.values(name, QUERY_DATA_LOSS) == {}, "its plan came to no end"
    scene.run(failOnDataLoss="false")
    eventually(lambda: memory.values(name, QUERY_DATA_LOSS) == {(scene.name,): 1})
    eventually(lambda: memory.values(name, QUERY_ROWS) == {(scene.name,): 2})


def test_a_running_query_is_watched_and_served_with_its_worst_twenty_shards(
    scene: Scene, memory: Memory
) -> None:
    scene.create(30)
    scene.put(*(b"%d" % n for n in range(300)))
    query = scene.run("served")
    eventually(lambda: is_read(query, 300))
    with sparkinesis.watch(scene.spark, exporters=[memory], http="127.0.0.1:0") as watch:

        def page(path: str) -> str:
            with urllib.request.urlopen(f"{watch.url}{path}") as response:
                text: str = response.read().decode()
                return text

        assert len(memory.values("served", QUERY_LAG)) == 20, "at once, from the last progress"
        assert memory.values("served", QUERY_LAG_MAX) == {(scene.name,): 0}
        assert memory.values("served", QUERY_ROWS) == {}, "counted from now on"
        scene.put(*(b"%d" % n for n in range(30)))
        rows = f'sparkinesis_query_rows_total{{query="served",stream="{scene.name}"}} 30.0'
        eventually(lambda: rows in page("/metrics"))
        assert memory.values("served", QUERY_ROWS) == {(scene.name,): 30}
        lag = 'sparkinesis_query_lag_seconds{query="served",shard="'
        assert page("/metrics").count(lag) == 20
        assert len(sparkinesis.lag(query)[scene.name].shards_ms) == 20
        told = json.loads(page("/status"))["queries"]["served"]
        assert told["running"]
        assert told["lag"][scene.name]["max_ms"] == 0
        query.stop()
        eventually(lambda: not json.loads(page("/status"))["queries"]["served"]["running"])
        assert rows in page("/metrics"), "counters stay"
        assert lag not in page("/metrics")
    with pytest.raises(OSError, match="refused"):
        page("/metrics")


def test_exporters_must_be_exporters(spark: SparkSession) -> None:
    with pytest.raises(sparkinesis.OptionError, match="must be a tuple of exporters"):
        sparkinesis.watch(spark, exporters="prometheus")  # type: ignore[arg-type]
