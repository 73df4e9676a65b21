"""Iceberg tables by pyiceberg: the number of the batch is in the commit of the rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from textwrap import indent
from typing import Any

from tests.needed import need
from tests.spark.lakes.flights import Flights, assert_each_once
from tests.spark.lakes.moments import Moments
from tests.spark.lakes.program import Program, printed


class Lake:
    """A table, and the program that writes it."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        need("pyiceberg", "sqlalchemy")
        self.text = printed("Iceberg")
        self.program = Program(self.text, folder, environment)
        self.files = folder / "lake" / "airports" / "flights" / "data"
        self._folder = folder / "lake"
        self._catalog = self._folder / "catalog.db"

    def last_batch(self) -> int:
        """The number in the table's metadata, as fast as the moments need it."""
        if not self._catalog.exists():
            return -1
        with closing(sqlite3.connect(self._catalog)) as catalog:
            tables = "SELECT count(*) FROM sqlite_master WHERE name = 'iceberg_tables'"
            if not catalog.execute(tables).fetchone()[0]:
                return -1
            row = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        if row is None:
            return -1
        metadata = json.loads(Path(row[0].removeprefix("file://")).read_text())
        return int(metadata["properties"].get("flights.batch", -1))

    def rows(self) -> list[dict[str, Any]]:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - of `make test-lakes`

        if self.last_batch() < 0:
            return []
        catalog = load_catalog(
            "lake", type="sql", uri=f"sqlite:///{self._catalog}", warehouse=f"file://{self._folder}"
        )
        found: list[dict[str, Any]] = (
            catalog.load_table("airports.flights").scan().to_arrow().to_pylist()
        )
        catalog.close()
        return found


def test_each_row_once(flights: Flights, environment: dict[str, str], tmp_path: Path) -> None:
    lake = Lake(environment, tmp_path)
    program = lake.program
    moments = Moments(program.checkpoint, lake.files, lake.last_batch)
    program.kill_when(moments.before_the_commit)
    flights.split()
    program.kill_when(moments.after_the_commit)
    flights.merge()
    put = flights.finish()
    program.run_until(lambda: len(lake.rows()) >= put, every=0.5)

    assert_each_once((row["id"] for row in lake.rows()), put)
    print(f"{program.kills} kills, {put} flights, {lake.last_batch() + 1} batches")


def test_a_new_column_is_refused_until_the_schema_is_updated_in_the_transaction(
    flights: Flights, environment: dict[str, str], tmp_path: Path
) -> None:
    lake = Lake(environment, tmp_path)
    program = lake.program
    program.run_until(lambda: len(lake.rows()) > 0)
    put = flights.finish()
    flights.put_some(10, gate="B12")
    text = lake.text.replace("plane STRING'", "plane STRING, gate STRING'")
    program.write(text)
    assert "PyArrow table contains more columns: gate" in program.fails()
    program.write(
        text.replace("        transaction.append(rows)\n", indent(printed("Iceberg", 2), 8 * " "))
    )
    program.run_until(lambda: len(lake.rows()) >= put + 10, every=0.5)
    rows = lake.rows()
    assert_each_once((row["id"] for row in rows), put + 10)
    assert {row["id"] for row in rows if row["gate"]} == set(range(put, put + 10))
