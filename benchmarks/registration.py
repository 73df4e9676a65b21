"""Measures what the package costs by which Spark finds ``format("kinesis")`` by itself.

One program starts a session and reads a stream, the other starts one and uses another data source.
Both run with and without the package, in turns; the one that goes first changes. Without it, the
reader of a stream calls `sparkinesis.register`, as all had to before.
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

TURNS = 8
WITH, WITHOUT = "with the package", "without it"
SESSION = """
import json, sys, time
began = time.perf_counter()
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(3).collect()
session = time.perf_counter()
"""
OTHER = """
class Other(DataSource):
    @classmethod
    def name(cls):
        return "other"
    def schema(self):
        return "number INT"

spark.dataSource.register(Other)
spark.read.format("other").load().schema
"""
STREAM = """
if sys.argv[1] == "register":
    import sparkinesis
    sparkinesis.register(spark)
spark.read.format("kinesis").option("streamName", "s").option("region", "eu-west-1").load().schema
"""
END = "print(json.dumps([session - began, time.perf_counter() - session]))"
PROGRAMS = {"a stream's DataFrame": STREAM, "another source's": OTHER}


def run() -> list[Result]:
    use_java()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, use in PROGRAMS.items():
            taken: dict[str, list[list[float]]] = {WITH: [], WITHOUT: []}
            for turn in range(TURNS):
                for variant in (WITH, WITHOUT) if turn % 2 else (WITHOUT, WITH):
                    program = SESSION + use + END
                    taken[variant].append(_measured(variant, program, Path(folder, variant)))
            for step, what in enumerate((f"session before {name}", name)):
                results += _compared(
                    what, *([turn[step] for turn in each] for each in taken.values())
                )
    return results


def _compared(what: str, one: list[float], other: list[float]) -> list[Result]:
    results = []
    for variant, seconds in ((WITH, one), (WITHOUT, other)):
        note = f"median of {len(seconds)}; {min(seconds) * 1000:,.0f} to {max(seconds) * 1000:,.0f}"
        ms = statistics.median(seconds) * 1000
        results.append(Result(f"{what}, {variant}", ms, "ms", note=note))
    return results


def _measured(variant: str, program: str, folder: Path) -> list[float]:
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
        [python, "-c", program, "find" if variant == WITH else "register"],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found
