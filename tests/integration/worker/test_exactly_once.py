"""Results and positions in one transaction: each record counts once, whatever happens.

Workers are processes, which are killed and stopped; the databases are SQLite and a real Postgres.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.exactly_once import sqlite as sqlite_example
from sparkinesis.local import LocalServer
from tests.documents import ROOT, blocks
from tests.integration.worker import exactly_once_process
from tests.integration.worker.exactly_once_process import FAILOVER_TIME
from tests.pace import Deadline
from tests.postgres import Postgres, running_postgres
from tests.streams import active_shards, merge_neighbours, put_all, split

PATIENCE = 90.0
Question = Callable[[str], list[tuple[Any, ...]]]


class Course:
    """A stream, a database, and the processes that count the stream's records in it."""

    def __init__(self, server: LocalServer, folder: Path, store: str, place: str) -> None:
        self.kinesis: Any = server.client("kinesis")
        self.dynamodb: Any = server.client("dynamodb")
        self.stream = f"s-{uuid.uuid4().hex[:8]}"
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=1)
        self.store, self.place = store, place
        self.ask: Question = (_ask_sqlite if store == "sqlite" else _ask_postgres)(place)
        self._folder = folder
        self._endpoint = server.endpoint_url
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        """Those that were not killed, by the number of their start."""
        self._starts = 0
        self.count = 0

    def put(self, count: int) -> None:
        """Put records, each with a key of its own."""
        keys = [f"r{n}" for n in range(self.count, self.count + count)]
        entries = [{"Data": key.encode(), "PartitionKey": key} for key in keys]
        put_all(self.kinesis, self.stream, entries)
        self.count += count

    def start(self, idle_timeout: str = "600s") -> int:
        """Start a worker's process. idle_timeout: Postgres' for a transaction that stands still."""
        self._starts += 1
        command = [sys.executable, "-m", exactly_once_process.__name__, self.store, self.place]
        command += [self._endpoint, self.stream, f"worker-{self._starts}"]
        command.append(str(self._log(self._starts)))
        environment = {**os.environ, "IDLE_TIMEOUT": idle_timeout}
        self.processes[self._starts] = subprocess.Popen(command, env=environment)
        return self._starts

    def _log(self, number: int) -> Path:
        return self._folder / f"{number}.log"

    def order(self, number: int, when: str) -> None:
        Path(f"{self._log(number)}.stop").write_text(when)

    def told(self, number: int, what: str) -> list[list[str]]:
        """The lines of a process's log that begin with a word."""
        log = self._log(number)
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in lines if line[0] == what]

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for number in list(self.processes):
            self.kill(number)

    def stop(self, number: int) -> None:
        os.kill(self.processes[number].pid, signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        os.kill(self.processes[number].pid, signal.SIGCONT)

    def totals(self) -> dict[str, int]:
        return dict(self.ask("SELECT key, records FROM totals"))

    def tokens(self) -> dict[str, int]:
        """The token that has claimed each shard, by its id."""
        rows = self.ask("SELECT shard, token FROM positions")
        return {shard.rpartition(" ")[2]: token for shard, token in rows}

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = Deadline(PATIENCE)
        while not condition():
            assert not deadline.has_passed(), (self.tokens(), len(self.totals()), self.count)
            time.sleep(0.02)

    def wait_for_all(self) -> None:
        self.wait_until(lambda: sum(self.totals().values()) >= self.count)

    def require_each_once(self) -> None:
        assert self.totals() == {f"r{n}": 1 for n in range(self.count)}

    def delete_table(self) -> None:
        """Delete the lease table, unless no worker has made it yet."""
        with contextlib.suppress(self.dynamodb.exceptions.ResourceNotFoundException):
            self.dynamodb.delete_table(TableName=self.stream)


def _ask_sqlite(file: str) -> Question:
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute(sqlite_example.POSITIONS)
        database.execute(sqlite_example.TOTALS)

    def ask(question: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(file, timeout=60)) as database:
            return database.execute(question).fetchall()

    return ask


def _ask_postgres(url: str) -> Question:
    import psycopg  # noqa: PLC0415 - of `make test-lakes`

    from examples.exactly_once import postgres as example  # noqa: PLC0415

    with psycopg.connect(url, autocommit=True) as database:
        database.execute(example.TABLES)

    def ask(question: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url, autocommit=True) as connection:
            found: list[tuple[Any, ...]] = connection.execute(question).fetchall()
            return found

    return ask


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def course(server: LocalServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Course]:
    place = str(tmp_path / "totals.sqlite")
    if request.param == "postgres":
        place = request.getfixturevalue("postgres").new_database()
    made = Course(server, tmp_path, request.param, place)
    yield made
    made.kill_all()


def test_the_page_shows_the_program_as_it_is() -> None:
    page = ROOT / "docs" / "exactly-once.md"
    (printed,) = [block.text for block in blocks(page) if block.language == "python"]
    assert printed == Path(sqlite_example.__file__).read_text()


@pytest.mark.parametrize("is_table_deleted", [False, True], ids=["its table", "a new table"])
def test_a_zombie_that_wakes_up_is_refused_by_its_token(
    course: Course, *, is_table_deleted: bool
) -> None:
    """It stands still before its transaction, in Postgres within, until another one has the shard.

    SQLite has one lock for all: who stands still within a transaction keeps the others waiting. So
    the stream has one shard here: all threads of a process stand still.
    """
    course.put(200)
    zombie = course.start()
    course.wait_for_all()
    old = course.tokens()
    when = "before" if course.store == "sqlite" else "middle"
    course.order(zombie, when)
    course.put(200)
    course.wait_until(lambda: bool(course.told(zombie, "stops")))
    if is_table_deleted:
        course.delete_table()
    heir = course.start()
    course.wait_until(lambda: all(course.tokens()[shard] > old[shard] for shard in old))
    course.go_on(zombie)
    course.wait_until(lambda: bool(course.told(zombie, "refused")))
    course.wait_for_all()
    course.put(100)
    course.wait_for_all()
    course.require_each_once()
    assert {int(token) for _, _, token in course.told(zombie, "refused")} <= set(old.values())
    assert course.told(heir, "claims")


@pytest.mark.parametrize("course", ["postgres"], indirect=True)
def test_postgres_ends_a_zombies_transaction_that_keeps_the_heir_waiting(course: Course) -> None:
    """Its uncommitted results lock their rows, until the server closes its connection."""
    course.put(100)
    zombie = course.start(idle_timeout="1s")
    course.wait_for_all()
    course.order(zombie, "middle")
    course.put(100)
    course.wait_until(lambda: bool(course.told(zombie, "stops")))
    course.start()
    course.wait_for_all()
    course.go_on(zombie)
    course.put(100)
    course.wait_for_all()
    course.require_each_once()


def test_a_call_that_fails_after_its_commit_stores_nothing_twice(course: Course) -> None:
    course.put(50)
    worker = course.start()
    course.wait_for_all()
    course.order(worker, "after")
    course.put(50)
    course.wait_until(lambda: bool(course.told(worker, "fails")))
    course.put(50)
    course.wait_for_all()
    course.require_each_once()


def test_a_store_is_worth_more_than_the_lease_table(course: Course) -> None:
    """The table is deleted while nobody runs: nothing is counted again, shard by shard."""
    rng = random.Random(1)
    course.put(300)
    worker = course.start()
    course.wait_for_all()
    split(course.kinesis, course.stream, rng)
    course.put(300)
    course.wait_for_all()
    old = course.tokens()
    course.kill(worker)
    course.delete_table()
    course.put(100)
    course.start()
    course.wait_for_all()
    course.put(100)
    course.wait_for_all()
    course.require_each_once()
    course.wait_until(lambda: all(course.tokens()[shard] > old[shard] for shard in old))


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.long)])
def test_kills_at_random_instants_and_all_that_happens_beside_them(
    course: Course, kills: int
) -> None:
    """Reshards, zombies that sleep beyond their lease, and a lease table that is made anew."""
    rng = random.Random(kills)
    workers = [course.start(), course.start()]
    sleepers: list[tuple[float, int]] = []
    for n in range(kills):
        course.put(rng.randrange(20, 80))
        if n % 3 == 1:
            split(course.kinesis, course.stream, rng)
        elif n % 3 == 2 and len(active_shards(course.kinesis, course.stream)) > 3:
            merge_neighbours(course.kinesis, course.stream, rng)
        time.sleep(rng.uniform(0.1, 1.2))  # the instant at which something happens is random
        victim = workers.pop(rng.randrange(len(workers)))
        if n % 4 == 3:
            course.stop(victim)
            sleepers.append((time.monotonic() + rng.uniform(1.5, 3.0) * FAILOVER_TIME, victim))
        else:
            course.kill(victim)
        if n % 10 == 4:
            course.delete_table()  # the other worker goes on, until its leases expire
        workers.append(course.start())
        for due, sleeper in [one for one in sleepers if one[0] <= time.monotonic()]:
            course.go_on(sleeper)
            sleepers.remove((due, sleeper))
    for _, sleeper in sleepers:
        course.go_on(sleeper)
    course.start()
    course.put(50)
    course.wait_for_all()
    course.put(50)
    course.wait_for_all()
    course.require_each_once()
    claims = [
        line for number in range(1, course._starts + 1) for line in course.told(number, "claims")
    ]
    by_shard: dict[str, list[int]] = {}
    for _, shard, token in claims:
        by_shard.setdefault(shard, []).append(int(token))
    assert all(len(set(found)) == len(found) for found in by_shard.values())
    assert course.tokens() == {shard: max(found) for shard, found in by_shard.items()}
    print(f"{kills} instants, {course.count} records, {len(claims)} claims, {len(by_shard)} shards")
