"""Where the JVM's tasks spend their CPU while the Spark source reads: a sampling profile.

The JDK's Flight Recorder samples the threads that run tasks (``jcmd PID JFR.start``, each 10 ms of
a running thread) while a query reads a backlog into a noop sink. A sample belongs to the first
frame, from the top of its stack, that names one of the places below. What the JIT and the garbage
collector need is in ``source_cpu``. Needs a JDK with ``jcmd`` and ``jfr``.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cpu_seconds import child_running
from benchmarks.local_server import running
from benchmarks.report import Result, print_table
from benchmarks.source import CASES, UNLIMITED, fill, kinesis_at, read, spark_session

PLACES = (
    ("reading the socket", ("java.net.Socket", "sun.nio.ch", "java.io.BufferedInputStream")),
    ("copying Arrow's buffers", ("org.apache.arrow.vector.ipc", "org.apache.arrow.memory")),
    ("reading Arrow's columns", ("org.apache.arrow", "org.apache.spark.sql.vectorized")),
    ("making rows", ("GeneratedClass", "org.apache.spark.sql.catalyst.expressions.codegen")),
    ("the sink and the metrics of rows", ("org.apache.spark.sql.execution.datasources.v2",)),
    ("the Python runner", ("org.apache.spark.sql.execution.python", "org.apache.spark.api.python")),
)
"""The parts of a task, and how the classes of their frames begin."""
REST = "other"


def place_of(frames: Sequence[str]) -> str:
    """Return the place of a sample; ``frames``: its classes, the top of the stack first."""
    for frame in frames:
        for place, prefixes in PLACES:
            if any(prefix in frame for prefix in prefixes):
                return place
    return REST


def stacks(recording: Mapping[str, Any]) -> Iterable[list[str]]:
    """Yield the classes of each sample of a thread that runs tasks, the top of the stack first."""
    for event in recording["recording"]["events"]:
        values = event["values"]
        thread = (values.get("sampledThread") or {}).get("javaName") or ""
        if thread.startswith("Executor task") and values.get("stackTrace"):
            frames = values["stackTrace"]["frames"]
            yield [frame["method"]["type"]["name"].replace("/", ".") for frame in frames]


def run() -> list[Result]:
    results = []
    spark = spark_session()
    try:
        jvm = child_running("org.apache.spark.deploy.SparkSubmit")
        for number, case in enumerate(CASES[:2]):
            with running() as server, tempfile.TemporaryDirectory() as folder:
                endpoint = f"http://127.0.0.1:{server.port}"
                kinesis = kinesis_at(endpoint)
                for stream in (f"warm-{number}", f"case-{number}"):
                    fill(kinesis, stream, case, case.rows)
                read(spark, endpoint, f"warm-{number}", UNLIMITED)
                path = Path(folder) / "samples.jfr"
                _call("jcmd", str(jvm), "JFR.start", "name=tasks", "settings=profile")
                batches, _ = read(spark, endpoint, f"case-{number}", UNLIMITED)
                _call("jcmd", str(jvm), "JFR.stop", "name=tasks", f"filename={path}")
                events = "jdk.ExecutionSample,jdk.NativeMethodSample"
                told = _call("jfr", "print", "--json", "--events", events, str(path))
            places = Counter(place_of(each) for each in stacks(json.loads(told)))
            samples = sum(places.values())
            results += [
                Result(
                    f"{case.name}: {place}",
                    100 * count / samples,
                    "%",
                    note=f"{count:,} of {samples:,} samples; {sum(batches):,} rows",
                )
                for place, count in places.most_common()
            ]
    finally:
        spark.stop()
    return results


def _call(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    print_table(__doc__.splitlines()[0], run())
