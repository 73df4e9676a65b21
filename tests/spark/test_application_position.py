"""A query that takes over from a KCL application, seen through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from tests.kcl import create_table, put_lease
from tests.spark.reading import read_stream
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_goes_on_inside_an_aggregate_and_from_its_own_checkpoint_then(
    spark: SparkSession, server: LocalServer, stream_name: str, checkpoint: str
) -> None:
    kinesis, dynamodb = server.client("kinesis"), server.client("dynamodb")
    kinesis.create_stream(StreamName=stream_name, ShardCount=1)
    (blob,) = aggregate([("k", None, b"%d" % n) for n in range(4)])
    answer = kinesis.put_record(StreamName=stream_name, Data=blob.data, PartitionKey="k")
    put(kinesis, stream_name, [b"4"])
    create_table(dynamodb, "app")
    put_lease(dynamodb, "app", answer["ShardId"], answer["SequenceNumber"], 1)

    batches: list[list[bytes]] = []

    def run() -> None:
        (
            read_stream(spark, server.endpoint_url, stream_name, initialPosition="application:app")
            .writeStream.foreachBatch(
                lambda batch, _: batches.append([bytes(row.data) for row in batch.collect()])
            )
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run()
    assert batches == [[], [b"2", b"3", b"4"]]
    dynamodb.delete_table(TableName="app")
    put(kinesis, stream_name, [b"5"])
    run()
    assert batches[2:] == [[b"5"]]
