"""Parquet files of Spark's own sink: Spark reads each row once, and a bare reader some twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.spark.lakes.files import is_whole
from tests.spark.lakes.flights import Flights, assert_each_once
from tests.spark.lakes.moments import Moments
from tests.spark.lakes.program import Program, printed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def last_batch(lake: Path) -> int:
    """The newest batch in the log of Spark's sink, where every tenth ends in .compact."""
    log = lake / "_spark_metadata"
    names = (each.name.removesuffix(".compact") for each in log.glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def test_spark_reads_each_row_once_and_a_bare_reader_some_twice(
    spark: SparkSession, flights: Flights, environment: dict[str, str], tmp_path: Path
) -> None:
    lake = tmp_path / "lake" / "flights"
    program = Program(printed("Parquet files"), tmp_path, environment)
    moments = Moments(program.checkpoint, lake, lambda: last_batch(lake))
    program.kill_when(moments.before_the_commit)
    flights.split()
    program.kill_when(moments.after_the_commit)
    flights.merge()
    put = flights.finish()
    program.run_until(lambda: spark.read.parquet(str(lake)).count() >= put, every=1.0)

    assert_each_once((row.id for row in spark.read.parquet(str(lake)).collect()), put)
    bare = list(lake.glob("*.parquet"))
    whole = [each for each in bare if is_whole(each)]
    counts = Counter(n for each in whole for n in pq.read_table(each)["id"].to_pylist())
    assert set(counts) == set(range(put))
    repeated = [n for n, count in counts.items() if count > 1]
    assert repeated, "the files of a batch that was killed before its commit stay"
    print(
        f"{program.kills} kills, {put} flights; in the bare folder {len(repeated)} are there more "
        f"than once, and {len(bare) - len(whole)} of {len(bare)} files are cut off"
    )


@pytest.mark.long
def test_a_new_column_is_in_new_files_and_a_reader_merges_the_schemas(
    spark: SparkSession, flights: Flights, environment: dict[str, str], tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake" / "flights")
    text = printed("Parquet files")
    program = Program(text, tmp_path, environment)
    program.run_until(lambda: last_batch(Path(lake)) >= 0)
    put = flights.finish()
    flights.put_some(10, gate="B12")
    program.write(text.replace("plane STRING'", "plane STRING, gate STRING'"))
    program.run_until(lambda: spark.read.parquet(lake).count() >= put + 10, every=1.0)

    merged = spark.read.option("mergeSchema", "true").parquet(lake).collect()
    assert_each_once((row.id for row in merged), put + 10)
    assert {row.id for row in merged if row.gate == "B12"} == set(range(put, put + 10))
    assert {row.id for row in merged if row.gate is None} == set(range(put))
    plain = spark.read.parquet(lake)
    print(f"without mergeSchema Spark reads the columns {plain.columns}")
