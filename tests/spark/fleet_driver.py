"""A fleet's driver, as a user writes one; a test tells it what to do, line by line.

Usage: fleet_driver.py ENDPOINT STREAM FOLDER WORKERS FAILOVER_TIME CHECKPOINTS LOST_AFTER

The processor is defined here, in what is ``__main__`` on the driver and not there on executors.
CHECKPOINTS: ``each`` batch, or at ``shutdown`` only; or ``imported``, for a processor of a module.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from sparkinesis import Application, FleetOptions, RecordProcessor, WorkerOptions

HEARTBEAT = 0.5


def make_processor(folder: str, checkpoints: str) -> Any:
    class Processor(RecordProcessor):
        """Writes down what it is given, in lines that survive a kill -9."""

        def initialize(self, shard: Any) -> None:
            # It cannot be pickled, and each shard has its own.
            path = Path(folder, f"events-{uuid.uuid4().hex}.jsonl")
            self.file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            self.place = {"shard": shard.id, "worker": shard.worker_id}
            self.write("initialize")

        def write(self, event: str, **more: Any) -> None:
            line = {"at": time.monotonic(), "event": event, **self.place, **more}
            os.write(self.file, json.dumps(line).encode() + b"\n")

        def process_records(self, batch: Any, checkpointer: Any) -> None:
            self.write("records", ids=[json.loads(r.data)["id"] for r in batch.records])
            if checkpoints == "each":
                checkpointer.checkpoint()

        def shutdown_requested(self, checkpointer: Any) -> None:
            checkpointer.checkpoint()
            self.write("shutdown_requested")

    return Processor


def job_states(spark: SparkSession, application: str) -> list[str]:
    """The states of the Spark jobs that a fleet has submitted; none by Spark Connect."""
    if is_remote():
        return []
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(f"sparkinesis {application}")
    return [info.status for job in jobs if (info := tracker.getJobInfo(job))]


def ended_job_states(spark: SparkSession, application: str) -> list[str]:
    """The states of a fleet's jobs after its end, of which Spark's tracker hears a moment later."""
    while "RUNNING" in (states := job_states(spark, application)):
        time.sleep(0.05)
    return states


def commands(folder: Path) -> Iterator[list[str]]:
    """The words of each line that the test adds to a file."""
    done = 0
    while True:
        lines = (folder / "commands").read_text().splitlines(keepends=True)
        for line in lines[done:]:
            if line.endswith("\n"):
                done += 1
                yield line.split()
        time.sleep(0.02)


def main(arguments: list[str]) -> None:
    endpoint, stream, folder, workers, failover_time, checkpoints, lost_after = arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    spark = SparkSession.builder.appName("fleet").getOrCreate()
    options = WorkerOptions(
        failover_time=float(failover_time),
        handoff_timeout=float(failover_time),
        idle_time=0.3,
        parent_poll_interval=1.0,
    )
    processor = make_processor(folder, checkpoints)
    if checkpoints == "imported":
        import fleet_processor  # type: ignore[import-not-found]  # noqa: PLC0415 - beside this file

        spark.addArtifacts(fleet_processor.__file__, pyfile=True)
        processor = functools.partial(fleet_processor.Imported, folder)
    application = Application(
        stream,
        stream,
        processor,
        region="eu-west-1",
        endpoint=endpoint,
        initial_position="trim_horizon",
        options=options,
    )
    fleet = application.run(
        spark,
        workers=int(workers),
        fleet=FleetOptions(heartbeat_interval=HEARTBEAT, lost_after=float(lost_after)),
    )
    results = Path(folder, "results.jsonl").open("a")  # noqa: SIM115 - until the end

    def answer(**what: Any) -> None:
        results.write(json.dumps(what) + "\n")
        results.flush()

    for name, *words in commands(Path(folder)):
        if name == "status":
            status = fleet.status()
            answer(
                state=status.state.value,
                workers={w.worker_id: w.state.value for w in status.workers},
                shards={s.shard_id: s.worker_id for s in status.shards},
                notes=status.notes,
                jobs=job_states(spark, stream),
            )
        elif name == "scale":
            fleet.scale(int(words[0]))
            answer(scaled=int(words[0]))
        elif name == "shutdown":
            began = time.monotonic()
            graceful = fleet.shutdown(30)
            seconds = time.monotonic() - began
            answer(
                graceful=graceful,
                seconds=seconds,
                began=began,
                jobs=ended_job_states(spark, stream),
                ended=fleet.await_termination(0),
                notes=fleet.status().notes,
                records=fleet.status().records,
            )
            break
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
