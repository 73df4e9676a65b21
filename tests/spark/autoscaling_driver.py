"""A query, and a fleet when a test asks for one, in a session whose executors come and go.

Usage: autoscaling_driver.py ENDPOINT STREAM FOLDER FAILOVER_TIME LOST_AFTER
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

# Beside this file.
from fleet_driver import HEARTBEAT, commands, make_processor  # type: ignore[import-not-found]
from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from examples.flights.query import write_once
from sparkinesis import Application, FleetOptions, WorkerOptions

REGION = "eu-west-1"


def main(endpoint: str, stream: str, folder: str, failover_time: str, lost_after: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = SparkSession.builder.appName("autoscaling").getOrCreate()
    sparkinesis.register(spark)  # shipped by --py-files

    def write(batch: DataFrame, batch_id: int) -> None:
        # A shuffle, whose files are on the executors.
        ids = batch.selectExpr("get_json_object(string(data), '$.id') AS id").repartition(2)
        write_once(ids, batch_id, Path(folder, "rows"))

    query = (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("region", REGION)
        .option("endpoint", endpoint)
        .option("initialPosition", "trim_horizon")
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    application = Application(
        stream,
        stream,
        make_processor(folder, "each"),
        region=REGION,
        endpoint=endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(
            failover_time=float(failover_time), handoff_timeout=float(failover_time), idle_time=0.3
        ),
    )
    options = FleetOptions(heartbeat_interval=HEARTBEAT, lost_after=float(lost_after))
    results = Path(folder, "results.jsonl").open("a")  # noqa: SIM115 - until the end

    def answer(**what: object) -> None:
        results.write(json.dumps(what) + "\n")
        results.flush()

    fleet = None
    for name, *words in commands(Path(folder)):
        if name == "fleet":
            fleet = application.run(spark, workers=int(words[0]), fleet=options)
            answer()
            continue
        assert fleet is not None
        status = fleet.status()
        if name == "status":
            answer(
                workers={w.worker_id: w.state.value for w in status.workers},
                waiting=status.waiting,
                notes=status.notes,
                is_query_active=query.isActive,
            )
        elif name == "scale":
            fleet.scale(int(words[0]))
            answer()
        elif name == "shutdown":
            answer(graceful=fleet.shutdown(30), notes=fleet.status().notes)


if __name__ == "__main__":
    main(*sys.argv[1:])
