"""A program whose session is a client of Spark Connect; prints what it sees of its query.

Arguments: the endpoint, the stream, and the folder of the checkpoint.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import sparkinesis
from sparkinesis.metrics import Measured
from sparkinesis.metrics.tally import Distribution, Tally
from tests.pace import eventually
from tests.spark.reading import read_stream


class Memory:
    """Keeps the metrics of each query that is watched."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}

    def open(self, measured: Measured) -> Tally:
        tally = self.tallies[measured.labels["query"]] = Tally()
        return tally

    def told(self, name: str) -> dict[str, float]:
        """The series of a query, by name and labels; of histograms the number of values."""
        series = self.tallies[name].series() if name in self.tallies else []
        return {
            " ".join((one.metric, *one.labels)): (
                one.value.count if isinstance(one.value, Distribution) else one.value
            )
            for one in series
        }


def main(endpoint: str, stream: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    sparkinesis.register(spark)
    memory = Memory()
    with sparkinesis.watch(spark, exporters=(memory,)):
        query = (
            read_stream(spark, endpoint, stream)
            .writeStream.format("noop")
            .queryName("connected")
            .option("checkpointLocation", folder)
            .start()
        )
        eventually(lambda: memory.told("connected").get(f"query.rows {stream}"))
        lag = {name: told.max_ms for name, told in sparkinesis.lag(query).items()}
        told = memory.told("connected")
        query.stop()
        eventually(lambda: memory.told("connected")["query.running"] == 0)
        print(json.dumps({"lag": lag, "told": told, "module": type(spark).__module__}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
