"""Flights of a Kinesis stream as a streaming table, and the late ones in another stream."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

spark = SparkSession.active()


@dp.table
def flights() -> DataFrame:
    records = (
        spark.readStream.format("kinesis")
        .option("streamName", "flights")
        .option("initialPosition", "trim_horizon")
        .load()
    )
    body = from_json(col("data").cast("string"), "carrier STRING, delay INT")
    return records.select(body.alias("flight"), "approximateArrivalTimestamp").select(
        "flight.*", col("approximateArrivalTimestamp").alias("arrived")
    )


dp.create_sink("late_flights", format="kinesis", options={"streamName": "late-flights"})


@dp.append_flow(target="late_flights")
def late() -> DataFrame:
    late_ones = spark.readStream.table("flights").where("delay > 15")
    data = to_json(struct("carrier", "delay"))
    return late_ones.select(col("carrier").alias("partitionKey"), data.alias("data"))
