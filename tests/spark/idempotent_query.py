"""A query whose sink is idempotent by batch id, run as a process of its own to be killed.

For each batch it writes ``started-N`` before it reads and ``batch-N.json``, at once and whole,
after. A batch that is replayed is compared with what the first try wrote: ``differs-N`` says that
it was not the same.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from sparkinesis.local.java import use_java
from tests.spark.reading import read_stream


def main(endpoint: str, stream: str, checkpoint: str, output: str) -> None:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # It lives for seconds: what makes a JVM fast later makes it slow now.
        .config(
            "spark.driver.extraJavaOptions",
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={output}",
        )
        .config("spark.local.dir", output)  # a killed process leaves its files behind
        .config("spark.sql.codegen.wholeStage", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sparkinesis.register(spark)
    folder = Path(output)

    def write(batch: DataFrame, batch_id: int) -> None:
        (folder / f"started-{batch_id}").touch()
        columns = ("shardId", "sequenceNumber", "subSequenceNumber", "data")
        rows = [
            [row.shardId, row.sequenceNumber, row.subSequenceNumber, bytes(row.data).decode()]
            for row in batch.select(*columns).collect()
        ]
        done = folder / f"batch-{batch_id}.json"
        if done.exists():
            if json.loads(done.read_text()) != rows:
                (folder / f"differs-{batch_id}").touch()
            return
        new = folder / f"new-{batch_id}"
        new.write_text(json.dumps(rows))
        new.rename(done)

    query = (
        read_stream(spark, endpoint, stream, minFetchPeriod="100ms")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    (folder / f"running-{os.getpid()}").touch()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
