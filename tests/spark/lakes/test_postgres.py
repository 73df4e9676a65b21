"""Postgres: the batch's number is in the transaction of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks
from tests.postgres import Postgres, running_postgres
from tests.spark.lakes.flights import Flights, assert_each_once
from tests.spark.lakes.program import PAGE, Program, printed
from tests.spark.query_process import wait_until

(TABLES,) = [block.text for block in blocks(PAGE) if block.language == "sql"]


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Any]:
    with postgres.connect() as connection:
        connection.execute(TABLES)
        yield connection


def value(database: Any, question: str) -> Any:
    return database.execute(question).fetchone()[0]


def last_batch(database: Any) -> int:
    return int(value(database, "SELECT coalesce(max(batch), -1) FROM progress"))


WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def kill_within_a_transaction(program: Program, postgres: Postgres, database: Any) -> None:
    """Kill the program after it has written the number, and before it has written the rows.

    Another transaction holds the table until the program is dead.
    """
    before = last_batch(database)
    with postgres.connect() as holder, holder.transaction():
        holder.execute("LOCK TABLE flights IN SHARE MODE")
        program.run_until(lambda: value(database, WAITS) > 0)
        program.kills += 1
    assert last_batch(database) == before


@pytest.mark.parametrize("number", [0, 1], ids=["copy", "staging"])
def test_each_row_once(
    number: int,
    *,
    postgres: Postgres,
    database: Any,
    flights: Flights,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    text = printed("Postgres", number)
    program = Program(text, tmp_path, {**environment, **postgres.environment})
    checkpoint = program.checkpoint
    kill_within_a_transaction(program, postgres, database)
    flights.split()
    program.kill_when(lambda: checkpoint.committed() < last_batch(database))
    flights.merge()
    put = flights.finish()
    program.run_until(lambda: value(database, "SELECT count(*) FROM flights") >= put)

    assert_each_once((row[0] for row in database.execute("SELECT id FROM flights")), put)
    print(f"{program.kills} kills, {put} flights, {last_batch(database) + 1} batches")


def test_a_new_column_needs_a_new_column_of_the_table(
    postgres: Postgres, database: Any, flights: Flights, environment: dict[str, str], tmp_path: Path
) -> None:
    """The program fails until the table has the column; the batch is then written whole."""
    text = printed("Postgres")
    program = Program(text, tmp_path, {**environment, **postgres.environment})
    program.run_until(lambda: value(database, "SELECT count(*) FROM flights") > 0)
    put = flights.finish()
    flights.put_some(10, gate="B12")
    program.write(
        text.replace("plane STRING'", "plane STRING, gate STRING'")
        .replace('"plane")', '"plane", "gate")')
        .replace("(id, plane)", "(id, plane, gate)")
    )
    assert 'column "gate" of relation "flights" does not exist' in program.fails()
    database.execute("ALTER TABLE flights ADD COLUMN gate TEXT")
    with program.running() as process:
        wait_until(
            lambda: value(database, "SELECT count(*) FROM flights") >= put + 10,
            process,
            program.log,
        )
    rows = database.execute("SELECT id, gate FROM flights").fetchall()
    assert_each_once((n for n, _ in rows), put + 10)
    assert {n for n, gate in rows if gate == "B12"} == set(range(put, put + 10))
