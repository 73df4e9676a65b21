"""A program that uses Spark's own formats first and a stream then; says when Spark looked around.

Spark imports every package whose name begins with ``pyspark_``, so one that leaves a file behind
tells that it did.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.reading import killable_session


def main(folder: str, endpoint: str) -> None:
    looked = Path(folder, "looked")
    spark = killable_session("local[1]", folder)
    spark.range(3).write.parquet(f"{folder}/numbers")
    spark.sql(f"CREATE TABLE numbers USING parquet LOCATION '{folder}/numbers'")
    spark.read.json(spark.read.text(f"{folder}/numbers").toDF("value"))
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    query.stop()
    before = looked.exists()
    stream = spark.read.format("kinesis").options(streamName="s", region="us-east-1")
    print(before, stream.option("endpoint", endpoint).load().count(), looked.exists())


if __name__ == "__main__":
    main(*sys.argv[1:])
