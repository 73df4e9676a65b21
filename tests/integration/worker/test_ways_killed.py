"""W1, W2: in each way to write an application, kill -9 and reshards lose nothing, key by key."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.local import LocalServer
from tests.integration.worker import ways_process
from tests.pace import Deadline
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
KEYS = 20


class Line(NamedTuple):
    """A record that a process has processed."""

    at: float
    shard: str
    position: ExtendedSequenceNumber
    key: str
    number: int


class Course:
    """A stream, the process that reads it, and what it has processed."""

    def __init__(self, server: LocalServer, folder: Path, way: str) -> None:
        self.kinesis: Any = server.client("kinesis")
        self.stream = f"s-{uuid.uuid4().hex[:8]}"
        self.kinesis.create_stream(StreamName=self.stream, ShardCount=2)
        self.put = dict.fromkeys((f"k{n}" for n in range(KEYS)), 0)
        self.folder = folder
        self.table = Application(
            self.stream, self.stream, region="us-east-1", endpoint=server.endpoint_url
        ).table()
        self._command = [sys.executable, "-m", ways_process.__name__, way]
        self._command += [server.endpoint_url, self.stream]
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def produce(self, rounds: int) -> None:
        for _ in range(rounds):
            entries = [
                {"Data": f"{key}:{count}".encode(), "PartitionKey": key}
                for key, count in self.put.items()
            ]
            self.kinesis.put_records(StreamName=self.stream, Records=entries)
            self.put = {key: count + 1 for key, count in self.put.items()}

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
                key, _, count = data.partition(":")
                place = ExtendedSequenceNumber(number, int(sub))
                found.append(Line(float(at), shard, place, key, int(count)))
        return found

    def wait_for(self, records: int) -> None:
        deadline = Deadline(60)
        while len({(one.key, one.number) for one in self.lines()}) < records:
            assert not deadline.has_passed()
            assert self.process is not None
            assert self.process.poll() is None
            time.sleep(0.02)

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
    rng = random.Random(kills)
    checkpoints: list[dict[str, ExtendedSequenceNumber]] = []
    for n in range(kills):
        course.start()
        course.produce(5)
        if n % 2 and len(active_shards(course.kinesis, course.stream)) > 2:
            merge_neighbours(course.kinesis, course.stream, rng)
        else:
            split(course.kinesis, course.stream, rng)
        course.produce(5)
        total = sum(course.put.values())
        course.wait_for(total - rng.randrange(1, 10 * KEYS))
        checkpoints.append(course.kill())
    course.start()
    course.wait_for(sum(course.put.values()))
    course.kill()

    first_seen: dict[str, dict[int, None]] = defaultdict(dict)
    for line in sorted(course.lines()):
        first_seen[line.key].setdefault(line.number)
    assert {key: list(seen) for key, seen in first_seen.items()} == {
        key: list(range(count)) for key, count in course.put.items()
    }
    for n, known in enumerate(checkpoints, 1):
        later = course.lines(n + 1)
        covered = [one for one in later if one.position <= known.get(one.shard, one.position)]
        covered = [one for one in covered if one.shard in known]
        assert covered == []
