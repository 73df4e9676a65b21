"""S1 in real processes: streams come, go, fail and are made anew while workers are killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault
from tests import pace
from tests.pace import Deadline
from tests.streams import active_shards, merge_neighbours, split

MODULE = "tests.integration.worker.streams_process"
FAILOVER_TIME = pace.seconds(2.0)
KEYS = [f"k{n}" for n in range(5)]
DENIED = Fault.error("AccessDeniedException", "User is not authorized")


@dataclass
class Putting:
    """What a producer has put into the streams, each life of a stream for itself."""

    kinesis: Any
    lives: dict[str, int] = field(default_factory=dict)
    """The life of each stream that gets records now: a stream that is made anew has another."""
    put: dict[str, int] = field(default_factory=dict)
    """The number of records by ``<stream>/<life>/<key>``, whose numbers begin at 0."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Putting:
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _produce(self) -> None:
        while not self._stopping.wait(pace.seconds(0.3)):
            for stream in list(self.lives):
                with self.lock:
                    self._put(stream)

    def _put(self, stream: str) -> None:
        if stream not in self.lives:
            return
        places = [f"{stream}/{self.lives[stream]}/{key}" for key in KEYS]
        entries = [
            {"Data": f"{place}:{self.put.get(place, 0)}".encode(), "PartitionKey": place}
            for place in places
        ]
        answer = self.kinesis.put_records(StreamName=stream, Records=entries)
        for place, result in zip(places, answer["Records"], strict=True):
            self.put[place] = self.put.get(place, 0) + ("ErrorCode" not in result)


class Journal:
    """What the workers have processed, by their files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = defaultdict(int)
        self.lines: list[dict[str, Any]] = []
        self.seen: dict[str, set[int]] = defaultdict(set)

    def update(self) -> None:
        for path in self._folder.glob("*.log"):
            with path.open("rb") as file:
                file.seek(self._read[path])
                text = file.read()
            whole = text.rpartition(b"\n")[0]
            self._read[path] += len(whole) + bool(whole)
            for line in whole.splitlines():
                self.lines.append(json.loads(line))
                for data in self.lines[-1]["data"]:
                    place, _, number = data.rpartition(":")
                    self.seen[place].add(int(number))

    def has_all(self, put: dict[str, int]) -> bool:
        self.update()
        return all(len(self.seen[place]) >= count for place, count in put.items())


class Setting:
    """The server, the worker processes, and what happens to them."""

    def __init__(self, folder: Path, streams: int, seed: int) -> None:
        self.folder = folder
        self.name = f"a-{uuid.uuid4().hex[:6]}"
        self.rng = random.Random(seed)
        self.denied: set[str] = set()
        self.server = LocalServer(port=0, dynamodb=True, faults=self._fault)
        self.streams = [f"{self.name}-{n}" for n in range(streams)]
        self.wanted: list[str] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.numbers = itertools.count()
        self.kills = 0
        self.acts: list[str] = []

    def _fault(self, call: Call) -> Fault | None:
        reads = {"GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary"}
        return DENIED if call.stream in self.denied and call.operation in reads else None

    def want(self, streams: list[str]) -> None:
        self.wanted = streams
        (self.folder / "streams.new").write_text("\n".join(streams))
        (self.folder / "streams.new").rename(self.folder / "streams")

    def start_worker(self) -> None:
        worker = f"worker-{next(self.numbers)}"
        with (self.folder / f"{worker}.err").open("wb") as errors:
            command = [sys.executable, "-m", MODULE, self.server.endpoint_url, self.name, worker]
            command += [str(self.folder), str(FAILOVER_TIME)]
            self.running[worker] = subprocess.Popen(command, stderr=errors)

    def restart(self) -> None:
        """Start a worker for each that has ended by itself, as whoever runs workers does.

        On a busy machine, a worker may not reach the lease table when it starts.
        """
        for worker, process in list(self.running.items()):
            if process.poll() is not None:
                self.acts.append(f"{worker} ended: {self.errors(worker).splitlines()[-1]}")
                del self.running[worker]
                self.start_worker()

    def kill(self) -> None:
        victim = self.rng.choice(sorted(self.running))
        process = self.running.pop(victim)
        process.kill()
        process.wait()
        self.kills += 1
        self.acts.append(f"kill {victim}")

    def end(self) -> dict[str, str]:
        """SIGTERM to all; returns the log of each worker that ended badly.

        One that was started a moment ago may not handle signals yet, and has no lease either.
        """
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        bad = {}
        for worker, process in self.running.items():
            code, log = process.wait(pace.seconds(60)), self.errors(worker)
            if code != 0 and (code != -signal.SIGTERM or "has started" in log):
                bad[worker] = log
        return bad

    def errors(self, worker: str) -> str:
        return (self.folder / f"{worker}.err").read_text()[-4000:]


@dataclass
class Course:
    setting: Setting
    putting: Putting
    journal: Journal
    kinesis: Any

    def settle(self, streams: list[str] | None = None) -> None:
        """Wait until all records so far of the streams, by default all, are processed."""
        with self.putting.lock:
            put = dict(self.putting.put)
        if streams is not None:
            put = {place: n for place, n in put.items() if place.split("/")[0] in streams}
        deadline = Deadline(120)
        while not self.journal.has_all(put):
            self.setting.restart()
            missing = {p: n - len(self.journal.seen[p]) for p, n in put.items()}
            assert not deadline.has_passed(), (
                {p: n for p, n in missing.items() if n > 0},
                self.setting.acts,
                {worker: self.setting.errors(worker) for worker in self.setting.running},
            )
            time.sleep(0.1)

    # --- what happens

    def add(self) -> None:
        setting = self.setting
        absent = [one for one in setting.streams if one not in setting.wanted]
        if absent:
            one = absent[0]
            if one not in self.putting.lives:
                self.kinesis.create_stream(StreamName=one, ShardCount=setting.rng.choice([1, 2]))
                self.putting.lives[one] = 0
            setting.want([*setting.wanted, one])
            setting.acts.append(f"add {one}")

    def remove(self) -> None:
        """Its producer goes on: the records are to be read when the stream returns."""
        one = self.setting.rng.choice(self.setting.wanted)
        self.setting.want([each for each in self.setting.wanted if each != one])
        self.setting.acts.append(f"remove {one}")

    def make_anew(self) -> None:
        setting, lives = self.setting, self.putting.lives
        one = setting.rng.choice([each for each in setting.wanted if each not in setting.denied])
        with self.putting.lock:
            life = lives.pop(one)
        self.settle([one])  # or the deletion would lose the rest, rightly
        made = self.kinesis.describe_stream_summary(StreamName=one)["StreamDescriptionSummary"]
        self.kinesis.delete_stream(StreamName=one)
        while time.time() < made["StreamCreationTimestamp"].timestamp() + 1.1:
            time.sleep(0.05)  # the identifier counts whole seconds
        self.kinesis.create_stream(StreamName=one, ShardCount=setting.rng.choice([1, 2]))
        lives[one] = life + 1
        setting.acts.append(f"make {one} anew")

    def reshard(self) -> None:
        one = self.setting.rng.choice(sorted(self.putting.lives))
        with contextlib.suppress(ClientError):  # of a stream that is denied
            if len(active_shards(self.kinesis, one)) < 3:
                split(self.kinesis, one, self.setting.rng)
            else:
                merge_neighbours(self.kinesis, one, self.setting.rng)
            self.setting.acts.append(f"reshard {one}")

    def deny(self) -> None:
        if self.setting.denied:
            self.setting.acts.append(f"allow {self.setting.denied}")
            self.setting.denied = set()
        else:
            self.setting.denied = {self.setting.rng.choice(self.setting.wanted)}
            self.setting.acts.append(f"deny {self.setting.denied}")


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: int) -> Iterator[Setting]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    made = Setting(tmp_path, streams, int(os.environ.get("FLEET_SEED", "1947")))
    with made.server:
        try:
            yield made
        finally:
            for process in made.running.values():
                process.kill()
                process.wait()


@pytest.mark.parametrize(
    ("streams", "workers", "kills", "interval"),
    [
        pytest.param(3, 2, 1, 0.0, id="brief"),
        pytest.param(10, 3, 2, 15.0, id="short", marks=pytest.mark.long),
        pytest.param(10, 3, 20, 30.0, id="ten minutes", marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_and_keys_stay_in_order(
    setting: Setting, streams: int, workers: int, kills: int, interval: float
) -> None:
    """``interval``: seconds between two kills."""
    began = time.monotonic()
    kinesis = setting.server.client("kinesis")
    putting, journal = Putting(kinesis), Journal(setting.folder)
    course = Course(setting, putting, journal, kinesis)
    first = max(2, streams - 2)
    setting.want(setting.streams[:first])
    for name in setting.streams[:first]:
        kinesis.create_stream(StreamName=name, ShardCount=setting.rng.choice([1, 2]))
        putting.lives[name] = 0
    with putting:
        for _ in range(workers):
            setting.start_worker()
        course.settle()
        acts = itertools.cycle(
            [course.add, course.reshard, course.make_anew, course.deny, course.remove]
        )
        for _ in range(kills):
            until = time.monotonic() + interval
            for act in itertools.islice(acts, 5 if not interval else 3):
                act()
            setting.kill()
            setting.start_worker()
            while time.monotonic() < until:
                setting.restart()
                time.sleep(0.5)
        setting.denied = set()
        setting.want(sorted(putting.lives))
        course.settle()
    course.settle()
    assert setting.end() == {}
    journal.update()
    lines = sorted(journal.lines, key=lambda line: float(line["at"]))
    processed = sum(len(line["data"]) for line in lines)
    print(
        f"{time.monotonic() - began:.0f} s, {setting.kills} kills, {len(setting.acts)} acts, "
        f"{sum(putting.put.values())} records put into {len(putting.put) // len(KEYS)} streams, "
        f"{processed} processed"
    )
    print("\n".join(setting.acts))
    order: dict[str, dict[int, None]] = defaultdict(dict)
    identifiers: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        for data in line["data"]:
            place, _, number = data.rpartition(":")
            order[place].setdefault(int(number))
            identifiers[place.rpartition("/")[0]].add(line["stream"])
    assert {place: list(seen) for place, seen in order.items()} == {
        place: list(range(count)) for place, count in putting.put.items()
    }
    # Each life of each stream has been read with leases of its own.
    assert all(len(found) == 1 for found in identifiers.values()), identifiers
    assert len({next(iter(found)) for found in identifiers.values()}) == len(identifiers)
