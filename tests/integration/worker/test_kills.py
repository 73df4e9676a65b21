"""W1, W2, W10: kill -9 and reshards lose nothing, key by key.

Of the process of an application, in each way to write one, and of supervised workers and of their
supervisor. The instants are random: each is when some of the records are still missing.
`test_exactly_once` kills the workers of an application with a store of its own.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import LocalServer
from tests.integration.worker import ways_process
from tests.integration.worker.process_session import Program, members
from tests.pace import eventually
from tests.streams import active_shards, merge_neighbours, split

WAYS = (
    "class",
    "function",
    "async class",
    "async function",
    "loop",
    "async loop",
    "concurrency",
    "async concurrency",
)
KEYS = [f"key-{n}" for n in range(20)]
ROUNDS = 5


class Produced:
    """Puts records to which each key has a next one, in a stream that is resharded."""

    def __init__(self, kinesis: Any, stream: str, rng: random.Random) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._rng = rng
        self._rounds = 0

    def more(self, *, is_merge: bool) -> int:
        """Put records before and behind a reshard; return how many of all are to be awaited."""
        self._put()
        if is_merge and len(active_shards(self._kinesis, self._stream)) > 2:
            merge_neighbours(self._kinesis, self._stream, self._rng)
        else:
            split(self._kinesis, self._stream, self._rng)
        self._put()
        return self.records - self._rng.randrange(1, 2 * ROUNDS * len(KEYS))

    def _put(self) -> None:
        for number in range(self._rounds, self._rounds + ROUNDS):
            entries = [{"Data": f"{key}:{number}".encode(), "PartitionKey": key} for key in KEYS]
            self._kinesis.put_records(StreamName=self._stream, Records=entries)
        self._rounds += ROUNDS

    @property
    def records(self) -> int:
        return self._rounds * len(KEYS)

    def require_order(self, found: Iterable[str]) -> None:
        """Require that the records were first seen completely, and in the order of each key."""
        first_seen: dict[str, dict[int, None]] = defaultdict(dict)
        for key, _, number in (data.partition(":") for data in found):
            first_seen[key].setdefault(int(number))
        assert {key: list(seen) for key, seen in first_seen.items()} == {
            key: list(range(self._rounds)) for key in KEYS
        }


class Line(NamedTuple):
    """A record that a process has processed."""

    at: float
    shard: str
    position: ExtendedSequenceNumber
    data: str


class Course:
    """A stream, the process that reads it, and what it has processed."""

    def __init__(self, server: LocalServer, folder: Path, way: str) -> None:
        self.kinesis: Any = server.client("kinesis")
        self.stream = f"s-{uuid.uuid4().hex[:8]}"
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=2)
        self.folder = folder
        self.table = Application(
            self.stream, self.stream, region="us-east-1", endpoint=server.endpoint_url
        ).table()
        self._command = [sys.executable, "-m", ways_process.__name__, way]
        self._command += [server.endpoint_url, self.stream]
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        log = self.folder / f"{self._starts}.log"
        self.process = subprocess.Popen([*self._command, f"worker-{self._starts}", str(log)])

    def lines(self, start: int | None = None) -> list[Line]:
        """Return what was processed, or what one of the processes has."""
        names = [f"{start}.log"] if start else [f"{n + 1}.log" for n in range(self._starts)]
        found = []
        for path in (self.folder / name for name in names):
            text = path.read_text() if path.exists() else ""
            for line in text[: text.rfind("\n") + 1].splitlines():
                at, shard, number, sub, data = line.split(" ")
                found.append(Line(float(at), shard, ExtendedSequenceNumber(number, int(sub)), data))
        return found

    def has_processed(self, records: int) -> bool:
        assert self.process is not None
        assert self.process.poll() is None
        return len({one.data for one in self.lines()}) >= records

    def kill(self) -> dict[str, ExtendedSequenceNumber]:
        """Kill the process; return the checkpoints of the shards by then."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        return {row.shard_id: row.checkpoint for row in self.table.leases()}


@pytest.fixture
def course(tmp_path: Path, way: str, server: LocalServer) -> Iterator[Course]:
    made = Course(server, tmp_path, way)
    yield made
    if made.process is not None:
        made.kill()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_kills_lose_nothing_and_repeat_only_what_no_checkpoint_covers(
    course: Course, kills: int
) -> None:
    produced = Produced(course.kinesis, course.stream, random.Random(kills))
    checkpoints: list[dict[str, ExtendedSequenceNumber]] = []
    for n in range(kills):
        course.start()
        wanted = produced.more(is_merge=bool(n % 2))
        eventually(functools.partial(course.has_processed, wanted))
        checkpoints.append(course.kill())
    course.start()
    eventually(lambda: course.has_processed(produced.records))
    course.kill()
    produced.require_order(line.data for line in sorted(course.lines()))
    for n, known in enumerate(checkpoints, 1):
        later = [one for one in course.lines(n + 1) if one.shard in known]
        assert [one for one in later if one.position <= known[one.shard]] == []


def has_processed(program: Program, records: int) -> bool:
    return len(program.processed()) >= records


def has_ended(session: int) -> bool:
    return not members(session)


@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.long)])
def test_kills_of_either_side_lose_nothing_and_leave_no_orphan(
    program: Program, kinesis: Any, kills: int
) -> None:
    rng = random.Random(kills)
    produced = Produced(kinesis, program.stream, rng)
    program.start()
    for n in range(kills):
        wanted = produced.more(is_merge=bool(n % 2))
        eventually(functools.partial(has_processed, program, wanted))
        if n % 3 == 1:
            killed = program.pid
            os.kill(killed, signal.SIGKILL)
            program.wait()
            program.start()
            eventually(functools.partial(has_ended, killed))
        else:
            eventually(program.workers)
            os.kill(rng.choice(program.workers()), signal.SIGKILL)
    eventually(lambda: len(program.processed()) == produced.records)
    eventually(lambda: len(program.workers()) == 2)
    os.kill(program.pid, signal.SIGTERM)
    assert program.wait() == 0, program.said()
    eventually(lambda: not program.left())
    produced.require_order(data for event in program.events() for data in event.get("data", ()))
