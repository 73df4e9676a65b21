"""A query for many rows: what its sink keeps of a batch is one sorted column of numbers.

For each batch it writes ``started-N`` before it reads and ``batch-N.parquet``, at once and whole,
after; a batch that is there is left alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from examples.flights.query import start_patiently
from tests.spark.reading import killable_session, read_stream

DIGITS = 7
"""A record begins with its number, so long."""


def main(endpoint: str, stream: str, checkpoint: str, output: str) -> None:
    spark = killable_session("local[4]", output)  # tasks wait more for calls than for a core
    folder = Path(output)
    number = F.substring(F.col("data").cast("string"), 1, DIGITS).cast("int").alias("number")

    def write(batch: DataFrame, batch_id: int) -> None:
        done = folder / f"batch-{batch_id}.parquet"
        if done.exists():
            return
        (folder / f"started-{batch_id}").touch()
        rows = batch.select(number).toArrow()
        new = folder / f"new-{batch_id}"
        pq.write_table(rows.take(pc.sort_indices(rows["number"])), new)
        new.rename(done)

    writer = (
        read_stream(spark, endpoint, stream)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
    )
    start_patiently(writer.start).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
