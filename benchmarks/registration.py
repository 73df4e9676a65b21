"""Measures what the package costs by which Spark finds ``format("kinesis")`` by itself.

The steps are the start of a session, another package's data source, and the first DataFrame of a
stream. Programs with and without the package run in turns. Without it, the program calls
`sparkinesis.register`, as all had to before.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pyspark_sparkinesis
import sparkinesis
from benchmarks.report import Result
from sparkinesis.local import use_java

TURNS = 10
WITH, WITHOUT = "with the package", "without it"
PROGRAM = """
import json, sys, time
began = time.perf_counter()
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(3).collect()
session = time.perf_counter()

class Other(DataSource):
    @classmethod
    def name(cls):
        return "other"
    def schema(self):
        return "number INT"

spark.dataSource.register(Other)
spark.read.format("other").load().schema
other = time.perf_counter()
if sys.argv[1] == "register":
    import sparkinesis
    sparkinesis.register(spark)
spark.read.format("kinesis").option("streamName", "s").option("region", "eu-west-1").load().schema
kinesis = time.perf_counter()
print(json.dumps([session - began, other - session, kinesis - other]))
"""


def run() -> list[Result]:
    use_java()
    seconds: dict[str, list[list[float]]] = {WITH: [], WITHOUT: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for variant, taken in seconds.items():
                taken.append(_measured(variant, Path(folder, variant)))
    results = []
    for step, name in enumerate(("start of a session", "another source", "a stream's DataFrame")):
        one = [turn[step] * 1000 for turn in seconds[WITH]]
        other = [turn[step] * 1000 for turn in seconds[WITHOUT]]
        difference = statistics.median(a - b for a, b in zip(one, other, strict=True))
        for variant, ms in ((WITH, one), (WITHOUT, other)):
            note = f"median of {TURNS} turns, {min(ms):,.0f} to {max(ms):,.0f}"
            results.append(Result(f"{name}, {variant}", statistics.median(ms), "ms", note=note))
        results.append(Result(f"{name}, difference in a turn", difference, "ms", note="median"))
    return results


def _measured(variant: str, folder: Path) -> list[float]:
    """Seconds of the steps of a program whose path has, or lacks, the package."""
    if not folder.exists():
        folder.mkdir()
        packages = [sparkinesis, pyspark_sparkinesis][: 2 if variant == WITH else 1]
        for package in packages:
            (folder / package.__name__).symlink_to(Path(str(package.__file__)).parent)
    # The interpreter that this virtual environment is made of, so that no .pth file adds a path.
    python = str(Path(sys._base_executable))  # type: ignore[attr-defined]
    path = os.pathsep.join((str(folder), sysconfig.get_path("purelib")))
    done = subprocess.run(
        [python, "-c", PROGRAM, "find" if variant == WITH else "register"],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found
