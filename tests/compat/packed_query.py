"""A query as a user submits it; its rows tell where the tasks found the source."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sparkinesis

PLACES = "package STRING, executor STRING"


def places(_: str) -> tuple[str, str]:
    return str(Path(sparkinesis.__file__).resolve()), str(Path.cwd())


def main(endpoint: str, stream: str, region: str, output: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    sparkinesis.register(spark)
    options = {
        "streamName": stream,
        "region": region,
        "endpoint": endpoint,
        "initialPosition": "trim_horizon",
    }
    records = spark.readStream.format("kinesis").options(**options).load()
    found = F.udf(places, PLACES)("partitionKey")
    rows = records.select("partitionKey", found.alias("places"))
    query = (
        rows.select("partitionKey", "places.*")
        .writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", f"{output}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
