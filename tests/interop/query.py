"""A streaming query in its process: ``... tests.interop.query NAME KINESIS STREAM FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from sparkinesis.local.java import use_java
from tests.interop.servers import REGION

if TYPE_CHECKING:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


def main(name: str, kinesis: str, stream: str, folder: str) -> None:
    """Runs the query until it is killed. Each try of a batch writes one whole file, or none."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    output = Path(folder)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("interop")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    sparkinesis.register(spark)

    def write(batch: DataFrame | ClassicDataFrame, number: int) -> None:
        rows = [json.loads(row["data"]) for row in batch.select("data").collect()]
        records = [(row["key"], row["number"]) for row in rows]
        part = output / f"part-{name}-{number}"
        part.write_text(json.dumps(records), encoding="utf-8")
        part.rename(output / f"batch-{number}-{name}.json")

    rows = (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("region", REGION)
        .option("endpoint", kinesis)
        .option("initialPosition", "trim_horizon")
        .load()
    )
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(output / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
