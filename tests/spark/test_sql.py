"""Tables of the catalog: docs/sql.md as printed, and the statements that must not work."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkinesis
from sparkinesis.local import LocalServer, ManualClock
from tests.documents import ROOT, blocks
from tests.engine import query_of
from tests.spark.reading import python_environment
from tests.streams import put, shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "sql.md"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
HALF_PAST_EIGHT = datetime(2026, 11, 21, 8, 30, tzinfo=timezone.utc)
DELAYS = [("UA", 5), ("AA", 40), ("UA", 90)]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One server for all tests: Spark starts new Python processes for another environment."""
    clock = ManualClock(int(HALF_PAST_EIGHT.timestamp() * 1000))
    with LocalServer(port=0, clock=clock, limits=None) as running:
        yield running


@pytest.fixture
def sql(spark: SparkSession, server: LocalServer) -> Iterator[Any]:
    """Runs statements in the shared session, whose Python processes find the local Kinesis."""
    kinesis = server.client("kinesis", "eu-west-1")
    for name in ("flights", "copy"):
        kinesis.create_stream(StreamName=name, ShardCount=1)
    for key, delay in DELAYS:
        data = f'{{"delay": {delay}}}'.encode()
        kinesis.put_record(StreamName="flights", PartitionKey=key, Data=data)
    place = {"AWS_ENDPOINT_URL": server.endpoint_url, "AWS_REGION": "eu-west-1"}
    with python_environment(spark, place):
        yield spark.sql
    for row in spark.sql("SHOW TABLES").collect():
        spark.sql(f"DROP {'VIEW' if row.isTemporary else 'TABLE'} {row.tableName}")
    spark.conf.unset(PUSHDOWN)
    for name in ("flights", "copy"):
        kinesis.delete_stream(StreamName=name)


def stored(server: LocalServer, stream: str) -> list[tuple[str, bytes]]:
    """The records of a stream, read without Spark."""
    rows = [
        row for batch in query_of(server, stream, region="eu-west-1").drain() for row in batch.rows
    ]
    return [(row["partitionKey"], row["data"]) for row in rows]


def test_the_page(spark: SparkSession, sql: Any, tmp_path: Path) -> None:
    shown = ""
    names: dict[str, Any] = {"spark": spark}
    printed = 0
    for block in blocks(PAGE):
        if block.language == "sql":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                sql(block.text).show(truncate=False)
            shown = output.getvalue()
        elif block.language == "python":
            exec(block.text, names)
        else:
            assert shown.strip() == block.text.strip(), block
            printed += 1
        if "late" in names:
            query = (
                names.pop("late")
                .writeStream.format("memory")
                .queryName("late")
                .option("checkpointLocation", str(tmp_path))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            assert [row.delay for row in sql("SELECT * FROM late").collect()] == [40, 90]
    assert printed == 5


def test_options_of_a_table_apply_to_the_uses_that_take_them(
    spark: SparkSession, sql: Any, server: LocalServer, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t USING kinesis OPTIONS (STREAMNAME 'flights', maxrecordspertrigger '2', "
        "aggregation 'true') TBLPROPERTIES ('initialPosition' = 'TRIM_HORIZON', 'team' = 'blue')"
    )
    sizes = []
    query = (
        spark.readStream.table("t")
        .writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [size for size in sizes if size] == [2, 1]
    assert sql("SELECT * FROM t").count() == 3
    sql("INSERT INTO t (data, partitionKey) SELECT X'00', 'k' FROM range(0, 5, 1, 1)")
    assert [key for key, _ in stored(server, "flights")[3:]] == 5 * ["k"]
    # Aggregated: one record of the stream holds the rows of a task.
    read = sql("SELECT count(DISTINCT sequenceNumber) FROM t WITH (deaggregate = 'false')")
    assert read.collect()[0][0] == 4


def test_filters_of_two_statements_do_not_mix(sql: Any, server: LocalServer) -> None:
    put(server.client("kinesis", "eu-west-1"), "copy", [b"x"])
    (shard,) = shard_ids(server.client("kinesis", "eu-west-1"), "copy")
    sql(f"SET {PUSHDOWN} = true")
    sql("CREATE TABLE t USING kinesis OPTIONS (streamName 'copy', filterPushdown 'true')")
    before = len(server.kinesis.calls.select("GetRecords"))
    assert sql("SELECT * FROM t WHERE shardId = 'shardId-000000000009'").count() == 0
    assert len(server.kinesis.calls.select("GetRecords")) == before
    assert sql("SELECT * FROM t").count() == 1
    hour = "now() - INTERVAL 1 HOUR"
    assert sql(f"SELECT * FROM t WHERE approximateArrivalTimestamp >= {hour}").count() == 0
    assert sql(f"SELECT * FROM t WHERE shardId = '{shard}'").count() == 1


INTO_THE_WRONG_STREAM = (
    "INSERT INTO copy SELECT * FROM flights",
    """INSERT INTO copy SELECT partitionKey, data, CAST(NULL AS STRING) AS stream,
    CAST(NULL AS STRING) AS shardId, CAST(NULL AS STRING) AS sequenceNumber,
    CAST(NULL AS TIMESTAMP) AS approximateArrivalTimestamp, CAST(NULL AS BIGINT)
    AS subSequenceNumber, explicitHashKey FROM flights""",
    """INSERT INTO copy SELECT a.partitionKey, a.data, b.stream, b.shardId, b.sequenceNumber,
    b.approximateArrivalTimestamp, b.subSequenceNumber, b.explicitHashKey
    FROM flights a LEFT JOIN flights b ON false""",
)


def test_no_write_ends_in_the_stream_that_is_read(
    spark: SparkSession, sql: Any, server: LocalServer, tmp_path: Path
) -> None:
    """Where Spark does not say which table is written, the rows bear the one that is read."""
    for name in ("flights", "copy"):
        sql(f"CREATE TABLE {name} USING kinesis OPTIONS (streamName '{name}')")
    for statement in INTO_THE_WRONG_STREAM:
        with pytest.raises(Exception, match=r"itself fills|stream to use is not clear"):
            sql(statement)
    with pytest.raises(Exception, match="itself fills"):
        spark.table("flights").writeTo("copy").append()
    query = (
        spark.readStream.option("initialPosition", "trim_horizon")
        .table("flights")
        .select("partitionKey", "data")
        .writeStream.option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .toTable("copy")
    )
    with pytest.raises(Exception, match="A streaming query does not write to a table"):
        query.awaitTermination()
    assert (len(stored(server, "flights")), stored(server, "copy")) == (3, [])
    sql("INSERT INTO copy (partitionKey, data) SELECT partitionKey, data FROM flights")
    spark.table("flights").select("partitionKey", "data").writeTo("copy").append()
    # Its own options count, not those of the table that is read.
    spark.table("flights").select("partitionKey", "data").write.format("kinesis").options(
        streamName="copy"
    ).mode("append").save()
    assert (len(stored(server, "flights")), len(stored(server, "copy"))) == (3, 9)


def test_another_name_beside_the_usual_one(spark: SparkSession, sql: Any) -> None:
    sparkinesis.register(spark, name="sparkinesis")
    sql("CREATE TABLE t USING sparkinesis OPTIONS (streamName 'flights')")
    assert sql("SELECT * FROM t").count() == 3
    sql("INSERT INTO t (data) VALUES (X'00')")
    for name in ("sparkinesis", "kinesis"):
        assert spark.read.format(name).option("streamName", "flights").load().count() == 4
