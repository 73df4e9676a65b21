"""Delta tables: each commit has the number of its batch. `deltalake` reads what Spark wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documents import ROOT
from tests.needed import missing, need
from tests.spark.lakes.flights import Flights, assert_each_once
from tests.spark.lakes.moments import Moments
from tests.spark.lakes.program import Program, printed

SPARK_4_2 = ROOT / ".venv" / "lakes"
"""Where `make test-lakes` puts PySpark 4.2, and Delta's JARs, which do not run on 4.3."""

WAYS = [("Delta Lake", 0), ("Delta Lake", 1), ("Delta Lake without JARs", 0)]
way = pytest.mark.parametrize(
    ("section", "number"), WAYS, ids=["streaming", "foreachBatch", "deltalake"]
)


def transactions(lake: Path) -> Iterator[int]:
    """The numbers of the batches in the log of a table."""
    for commit in (lake / "_delta_log").glob("*.json"):
        for line in commit.read_text().splitlines():
            if transaction := json.loads(line).get("txn"):
                yield int(transaction["version"])


class Lake:
    """A table, and the program that writes it."""

    def __init__(
        self, section: str, number: int, environment: dict[str, str], folder: Path
    ) -> None:
        need("deltalake")
        more: dict[str, Any] = {}
        if section == "Delta Lake":
            jars = sorted((SPARK_4_2 / "jars").glob("*.jar"))
            if not jars:
                missing(f"{SPARK_4_2} has no PySpark 4.2 with Delta's JARs")
            more["jars"] = ",".join(map(str, jars))
            environment = {**environment, "PYTHONPATH": str(SPARK_4_2)}
        self.text = printed(section, number)
        self.path = folder / "lake" / "flights"
        self.program = Program(self.text, folder, environment, **more)

    def last_batch(self) -> int:
        return max(transactions(self.path), default=-1)

    def rows(self) -> list[dict[str, Any]]:
        from deltalake import DeltaTable  # noqa: PLC0415 - of `make test-lakes`

        if not DeltaTable.is_deltatable(str(self.path)):
            return []
        found: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return found


@way
def test_each_row_once(
    section: str, number: int, flights: Flights, environment: dict[str, str], tmp_path: Path
) -> None:
    lake = Lake(section, number, environment, tmp_path)
    program = lake.program
    moments = Moments(program.checkpoint, lake.path, lake.last_batch)
    program.kill_when(moments.before_the_commit)
    flights.split()
    program.kill_when(moments.after_the_commit)
    flights.merge()
    put = flights.finish()
    program.run_until(lambda: len(lake.rows()) >= put, every=0.5)

    assert_each_once((row["id"] for row in lake.rows()), put)
    print(f"{program.kills} kills, {put} flights, {len(list(transactions(lake.path)))} commits")


@way
def test_a_new_column_is_refused_until_the_schemas_may_be_merged(
    section: str, number: int, flights: Flights, environment: dict[str, str], tmp_path: Path
) -> None:
    lake = Lake(section, number, environment, tmp_path)
    program = lake.program
    program.run_until(lambda: len(lake.rows()) > 0)
    put = flights.finish()
    flights.put_some(10, gate="B12")
    text = lake.text.replace("plane STRING'", "plane STRING, gate STRING'")
    program.write(text)
    refusal = "DELTA_METADATA_MISMATCH" if section == "Delta Lake" else "SchemaMismatchError"
    assert refusal in program.fails()
    program.write(
        text.replace('.option("checkpoint', '.option("mergeSchema", "true").option("checkpoint')
        .replace('.option("txnApp', '.option("mergeSchema", "true").option("txnApp')
        .replace('mode="append"', 'mode="append", schema_mode="merge"')
    )
    program.run_until(lambda: len(lake.rows()) >= put + 10, every=0.5)
    rows = lake.rows()
    assert_each_once((row["id"] for row in rows), put + 10)
    assert {row["id"] for row in rows if row["gate"]} == set(range(put, put + 10))
