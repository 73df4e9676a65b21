"""Measures the time from a put to the rows in `foreachBatch`, beside Spark's own floor.

A stream of 4 shards gets 50 records a second, one each, at random instants. Each carries the
instant before it was put, and `foreachBatch` reads the clock once it holds the rows. The floor is a
source of PySpark alone, in the same session, whose plan is the clock and whose batch is one row of
one task: records put at random instants would wait as long for the batches that it ran. The local
Kinesis has the service's limits and delivers at once.
"""

from __future__ import annotations

import base64
import bisect
import contextlib
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.local_server import Client, local_kinesis
from benchmarks.report import Result, print_table
from benchmarks.source import REGION, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "latency"
SHARDS = 4
PUTS_PER_SECOND = 50.0
SECONDS = 30.0
WARM_BATCHES = 15
"""The first batches, which the JVM compiles and which are not counted."""
SEED = 17
PATIENCE = 180.0
PERCENTILES = (50, 99)
PERIODS = {"the default": {}, "1s": {"minFetchPeriod": "1s"}}
"""By default the planner looks every 400 ms, as records arrive all the time."""
SOCKETS = {"TCP": "false", "Unix sockets": "true"}
"""How Spark talks to its Python processes: ``spark.python.unix.domain.socket.enabled``."""


def clock_source() -> type[DataSource]:
    """A source whose offset is the clock, and whose batch is one row with its end.

    Classes of this function, so that Spark's processes need not find this module.
    """

    class ClockReader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
            return {"at": time.time_ns()}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:  # noqa: ARG002
            return [InputPartition(end["at"])]

        def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
            yield (str(partition.value).encode(),)

    class Clock(DataSource):
        @classmethod
        def name(cls) -> str:
            return "clock"

        def schema(self) -> str:
            return "data BINARY"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
            return ClockReader()

    return Clock


@dataclass
class Arrivals:
    """The batches that `foreachBatch` has received, and how long Spark took for their parts."""

    batches: list[tuple[int, list[int]]] = field(default_factory=list)
    """The instant at which a batch's rows were there, and the rows, in nanoseconds."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, rows: DataFrame, _: int) -> None:
        instants = [int(bytes(row.data)) for row in rows.select("data").collect()]
        with self.changed:
            self.batches.append((time.time_ns(), instants))
            self.changed.notify_all()

    def wait_for(self, is_enough: Callable[[], bool]) -> None:
        with self.changed:
            if not self.changed.wait_for(is_enough, PATIENCE):
                raise RuntimeError(f"not delivered within {PATIENCE} s: is the machine busy?")

    def count(self) -> int:
        return sum(len(rows) for _, rows in self.batches)


@dataclass(frozen=True)
class Measured:
    milliseconds: list[float]
    planning: float
    """The median milliseconds of the batches in which Spark waited for the source's plan."""
    batch: float
    """The median milliseconds of the rest of a batch."""


@contextlib.contextmanager
def query_of(
    spark: SparkSession, source: str, arrivals: Arrivals, **options: str
) -> Iterator[Callable[[], tuple[float, float]]]:
    """Run a query during the block; yields a function: milliseconds of a plan, and of the rest."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format(source)
            .options(**options)
            .load()
            .writeStream.foreachBatch(arrivals.add)
            .option("checkpointLocation", checkpoint)
            .start()
        )

        def durations() -> tuple[float, float]:
            found = [p.durationMs for p in query.recentProgress if p.numInputRows]
            found = found[WARM_BATCHES:] or found
            plan = statistics.median(each["latestOffset"] for each in found)
            rest = statistics.median(
                each["triggerExecution"] - each["latestOffset"] for each in found
            )
            return plan, rest

        try:
            yield durations
        finally:
            query.stop()


def floor(spark: SparkSession) -> Measured:
    """Of records put at random instants, had they waited for the clock's batches."""
    arrivals = Arrivals()
    with query_of(spark, "clock", arrivals) as durations:
        arrivals.wait_for(lambda: len(arrivals.batches) > WARM_BATCHES)
        time.sleep(SECONDS)
        plan, rest = durations()
    ends = [(rows[0], at) for at, rows in arrivals.batches[WARM_BATCHES:]]
    rng = random.Random(SEED)
    taken = []
    for _ in range(10_000):
        put_at = rng.uniform(ends[0][0], ends[-1][0])
        taken.append((ends[bisect.bisect_left(ends, (put_at, 0))][1] - put_at) / 1e6)
    return Measured(sorted(taken), plan, rest)


def put(client: Client, shard: int) -> None:
    data = base64.b64encode(str(time.time_ns()).encode()).decode()
    hash_key = str(shard * (2**128 // SHARDS) + 1)
    client.call(
        "PutRecord", StreamName=STREAM, Data=data, PartitionKey="key", ExplicitHashKey=hash_key
    )


def kinesis(spark: SparkSession, endpoint: str, options: dict[str, str]) -> Measured:
    arrivals = Arrivals()
    client = Client(endpoint)  # the server closes connections that are idle, as in the floor
    rng = random.Random(SEED)
    settings = {"streamName": STREAM, "region": REGION, "initialPosition": "latest", **options}
    settings["endpoint"] = endpoint
    with query_of(spark, "kinesis", arrivals, **settings) as durations:
        deadline = time.monotonic() + PATIENCE
        while len(arrivals.batches) < WARM_BATCHES and time.monotonic() < deadline:
            time.sleep(rng.expovariate(PUTS_PER_SECOND))
            put(client, rng.randrange(SHARDS))
        first, count = time.time_ns(), 0
        while time.time_ns() - first < SECONDS * 1e9:
            time.sleep(rng.expovariate(PUTS_PER_SECOND))
            put(client, rng.randrange(SHARDS))
            count += 1

        def measured() -> list[float]:
            pairs = [(at, row) for at, rows in arrivals.batches for row in rows]
            return [(at - row) / 1e6 for at, row in pairs if row >= first]

        arrivals.wait_for(lambda: len(measured()) == count)
        plan, rest = durations()
    client.close()
    return Measured(sorted(measured()), plan, rest)


def run() -> list[Result]:
    results = []
    with local_kinesis(has_own_core=True) as client:
        client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        for sockets, is_unix in SOCKETS.items():
            config = {"spark.python.unix.domain.socket.enabled": is_unix}
            spark = spark_session(**config)
            try:
                spark.dataSource.register(clock_source())
                taken = {"Spark's floor": floor(spark)}
                for name, options in PERIODS.items():
                    taken[f"minFetchPeriod={name}"] = kinesis(spark, client.endpoint, options)
            finally:
                spark.stop()
            for name, measured in taken.items():
                cuts = statistics.quantiles(measured.milliseconds, n=100)
                parts = f"a batch: plan {measured.planning:,.0f} ms, rest {measured.batch:,.0f} ms"
                for percentile in PERCENTILES:
                    shown = "median" if percentile == 50 else f"{percentile} %"
                    title = f"{sockets}, {name}, {shown}"
                    results.append(Result(title, cuts[percentile - 1], "ms", note=parts))
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
