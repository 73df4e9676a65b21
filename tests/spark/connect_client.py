"""A client of Spark Connect, in a Python without sparkinesis; it is killed while its query runs.

Usage: connect_client.py REMOTE STREAM FOLDER
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(remote: str, stream: str, folder: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    query = (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("region", "eu-west-1")
        .option("initialPosition", "trim_horizon")
        .load()
        .selectExpr("CAST(data AS STRING) AS event")
        .writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    print("started", query.id, query.runId, flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
