"""From stream to stream: at least once, and exactly once behind a reader that drops repeats."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from tests.spark.lakes.flights import REGION, Flights, assert_each_once
from tests.spark.lakes.program import Checkpoint, Program, printed
from tests.streams import shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEPARTURES = "departures"


class Departures:
    """The records of the stream that the program writes."""

    def __init__(self, server: LocalServer) -> None:
        self._kinesis: Any = server.client("kinesis", REGION)
        self._calls = server.kinesis.calls
        self._kinesis.create_stream(StreamName=DEPARTURES, ShardCount=2)

    def puts(self) -> int:
        return self._calls.count("PutRecords", stream=DEPARTURES)

    def ids(self) -> list[int]:
        found = []
        for shard in shard_ids(self._kinesis, DEPARTURES):
            iterator = self._kinesis.get_shard_iterator(
                StreamName=DEPARTURES, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            behind = 1
            while behind:
                page = self._kinesis.get_records(ShardIterator=iterator)
                iterator, behind = page["NextShardIterator"], page["MillisBehindLatest"]
                found += [json.loads(each["Data"])["flight"] for each in page["Records"]]
        return [json.loads(flight)["id"] for flight in found]


class IsPutting:
    """Whether records of a batch are put, and Spark does not know that yet."""

    def __init__(self, departures: Departures, checkpoint: Checkpoint) -> None:
        self._departures = departures
        self._checkpoint = checkpoint
        self._batch = -1
        self._before = 0

    def __call__(self) -> bool:
        puts, batch = self._departures.puts(), self._checkpoint.planned()
        if batch != self._batch:
            self._batch, self._before = batch, puts
        return self._checkpoint.is_open() and puts > self._before


@pytest.mark.long
def test_repeats_are_put_and_the_reader_drops_them(
    spark: SparkSession,
    server: LocalServer,
    flights: Flights,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    departures = Departures(server)
    writer = Program(printed("Kinesis"), tmp_path, environment, name="departures")
    reader = Program(printed("Kinesis", 1), tmp_path, environment, name="reader")
    lake = tmp_path / "lake" / "departures"
    for reshard in (flights.split, flights.merge):
        writer.kill_when(IsPutting(departures, writer.checkpoint))
        reshard()
    old = flights.finish()
    flights.put_some(10, gate="B12")  # a new column, which the reader does not ask for
    put = flights.put
    writer.run_until(lambda: set(departures.ids()) == set(range(put)), every=0.5)
    counts = Counter(departures.ids())
    repeated = [n for n, count in counts.items() if count > 1]
    assert repeated, "a replayed batch is put again"

    reader.kill_when(reader.checkpoint.is_open)
    read = spark.read.schema("id BIGINT, plane STRING")  # at first there are no files
    reader.run_until(lambda: read.parquet(str(lake)).count() >= put, every=1.0)
    assert_each_once((row.id for row in read.parquet(str(lake)).collect()), put)

    records = spark.read.format("kinesis").options(
        streamName=DEPARTURES, region=REGION, endpoint=server.endpoint_url
    )
    asked = (
        "from_json(from_json(CAST(data AS STRING), 'flight STRING').flight, 'id INT, gate STRING')"
    )
    rows = records.load().selectExpr(f"{asked} AS flight").select("flight.*").distinct().collect()
    assert {row.id for row in rows if row.gate == "B12"} == set(range(old, put))
    assert {row.id for row in rows if row.gate is None} == set(range(old))
    print(
        f"{writer.kills} kills of the writer, {reader.kills} of the reader; {put} flights, "
        f"{counts.total()} records, {len(repeated)} flights more than once"
    )
