"""docs/queue-once.md: its programs count each record once, though most are delivered again.

Receivers are processes, which are killed; each record is released in its first delivery, and the
service forgets acknowledgements. The databases are SQLite and a real Postgres.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from tests.documents import DOCS, blocks
from tests.pace import eventually
from tests.postgres import running_postgres
from tests.streams import create_queue, put_all

PAGE = DOCS / "queue-once.md"
REGION = "eu-west-1"
RECORDS = 200
KILLS = 4
KEYS = 7
SQLITE, POSTGRES = (block.text for block in blocks(PAGE) if block.text.startswith("# totals"))
RELEASE = "    if record.receive_count == 1:\n        record.release()"
"""What has each record delivered twice, in a handler."""
MAIN = '\n\n\nif __name__ == "__main__":'
Ask = Callable[[str], list[tuple[Any, ...]]]


class Course:
    """A stream with records, its queue, and the processes that count them."""

    def __init__(self, server: LocalServer) -> None:
        self._endpoint = server.endpoint_url
        self._kinesis: Any = server.client("kinesis", region=REGION)
        # What a killed process had in hand comes again soon, and no record is given up.
        self._arn = create_queue(
            self._kinesis,
            "orders",
            "orders-totals",
            VisibilityTimeoutSeconds=2,
            DeadLetterConfiguration={"TargetType": "NONE"},
        )
        entries = [
            {"Data": b"%d" % number, "PartitionKey": f"k{number % KEYS}"}
            for number in range(RECORDS)
        ]
        put_all(self._kinesis, "orders", entries)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, program: Path) -> None:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        process = subprocess.Popen(
            [sys.executable, program],
            env={**ours, **keys, "AWS_ENDPOINT_URL": self._endpoint},
            stdout=subprocess.DEVNULL,
        )
        self._running.append(process)

    def kill(self, index: int) -> None:
        process = self._running.pop(index)
        process.kill()
        process.wait()

    def is_empty(self) -> bool:
        """Return True if no record can be received."""
        answer = self._kinesis.receive_queue_records(
            QueueARN=self._arn, WaitTimeSeconds=1, VisibilityTimeoutSeconds=0
        )
        return not answer["QueueRecords"]

    def end(self) -> None:
        while self._running:
            self.kill(0)


@pytest.fixture
def course() -> Iterator[Course]:
    rng = random.Random(7)

    def forget(call: Call) -> Fault | None:
        """Forget every tenth acknowledgement."""
        forgets = call.operation == "AcknowledgeQueueRecords" and rng.random() < 0.1
        return Fault(forgets_acknowledgement=True) if forgets else None

    with LocalServer(limits=None) as server:
        made = Course(server)
        server.kinesis.faults = forget
        yield made
        made.end()


def count_all(course: Course, program: Path, ask: Ask) -> None:
    """Run two receivers, kill one now and then, and look at what is counted in the end."""

    def noted() -> int:
        return int(ask("SELECT count(*) FROM done")[0][0])

    def has_noted(least: int) -> bool:
        return noted() >= least

    rng = random.Random(11)
    course.start(program)
    course.start(program)
    for kill in range(KILLS):
        eventually(partial(has_noted, RECORDS * (kill + 1) // (KILLS + 2)))
        course.kill(rng.randrange(2))
        course.start(program)
    eventually(lambda: noted() == RECORDS)
    # Each first delivery is released: those that are acknowledged have come at least twice.
    eventually(course.is_empty)
    course.end()
    assert noted() == RECORDS
    assert dict(ask("SELECT key, records FROM totals")) == {
        f"k{key}": sum(number % KEYS == key for number in range(RECORDS)) for key in range(KEYS)
    }


@pytest.mark.limit(180)
def test_sqlite_counts_each_record_once(course: Course, tmp_path: Path) -> None:
    file = str(tmp_path / "totals.sqlite")
    program = tmp_path / "totals.py"
    assert RELEASE in SQLITE
    program.write_text(SQLITE.replace("/tmp/totals.sqlite", file))

    def ask(query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(file, timeout=30)) as database:
            database.executescript(re.findall(r'TABLES = """(.*?)"""', SQLITE, re.DOTALL)[0])
            return database.execute(query).fetchall()

    count_all(course, program, ask)


@pytest.mark.limit(180)
def test_postgres_counts_each_record_once(course: Course, tmp_path: Path) -> None:
    with running_postgres() as postgres:
        url = postgres.new_database()
        text = POSTGRES.replace("postgresql:///flights", url)
        assert text.count(MAIN) == 1
        program = tmp_path / "totals_postgres.py"
        program.write_text(text.replace(MAIN, f"\n{RELEASE}{MAIN}"))

        def ask(query: str) -> list[tuple[Any, ...]]:
            import psycopg  # noqa: PLC0415 - of `make test-lakes`

            with psycopg.connect(url) as database:
                (there,) = database.execute("SELECT to_regclass('done') IS NOT NULL").fetchone()
                return list(database.execute(query).fetchall()) if there else [(0,)]

        count_all(course, program, ask)
        course.end()
