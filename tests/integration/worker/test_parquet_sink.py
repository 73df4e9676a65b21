"""A Parquet sink: files are whole, and there before the checkpoint, whatever happens."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sparkinesis.errors import LeaseLostError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.processors.processor import ProcessorShard
from tests.flaky import flaky
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene
from tests.integration.worker.sink_process import SCHEMA, Storing
from tests.journal import PATIENCE, Journal, Journaling
from tests.lake import rows_of, visible_files, visible_rows
from tests.pace import eventually
from tests.streams import put_at


class Lake:
    """Looks at the lease table and then at the files, many times a second, in a thread of its own.

    Whatever a checkpoint covers must be in the files; a file that cannot be read is a failure.
    """

    def __init__(self, folder: Path, table: LeaseTable) -> None:
        self.folder = folder
        self.put: dict[str, list[tuple[int, bytes]]] = {}
        """By shard: the sequence number and data of each record, in order."""
        self.checkpoints: set[tuple[str, str]] = set()
        """(shard, checkpoint), of those that were seen, and found behind the files."""
        self._table = table
        self._failure: BaseException | None = None
        self._stored: set[bytes] = set()
        self._files: set[str] = set()
        """Those that were read: a file is read as soon as it is seen, and never changes."""
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch)

    def add(self, kinesis: Any, stream: str, data: bytes, hash_key: int) -> None:
        shard = FIRST if hash_key < UPPER else SECOND
        number = put_at(kinesis, stream, data, hash_key)
        self.put.setdefault(shard, []).append((int(number), data))

    def __enter__(self) -> Lake:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait(self, condition: Callable[[set[bytes], int], bool]) -> None:
        """Wait for ``condition`` on what is stored and on how many checkpoints were seen."""

        def is_over() -> bool:
            done = condition(self._stored, len(self.checkpoints))
            return done or self._failure is not None

        with self._changed:
            assert self._changed.wait_for(is_over, PATIENCE), (self._stored, self.checkpoints)

    def wait_for_all(self) -> None:
        everything = {data for records in self.put.values() for _, data in records}
        self.wait(lambda stored, _: everything <= stored)

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(0.05):
                self._look()
        except BaseException as error:  # noqa: BLE001 - raised where the test can see it
            self._failure = error
        finally:
            with self._changed:
                self._changed.notify_all()

    def _look(self) -> None:
        leases = self._table.leases()  # first: what is in it must be in the files by now
        new = set(visible_files(self.folder)) - self._files
        stored = self._stored | {row["data"] for file in new for row in rows_of(self.folder / file)}
        self._files |= new
        for lease in leases:
            place = lease.checkpoint
            if place.sequence_number.isdecimal():
                until = int(place.sequence_number)
                covered = {
                    data for at, data in list(self.put.get(lease.shard_id, ())) if at <= until
                }
                assert covered <= stored, f"{lease.shard_id} is ahead of its files, at {place}"
                self.checkpoints.add((lease.shard_id, str(place)))
        with self._changed:
            self._stored = stored
            self._changed.notify_all()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


class Journaled(Storing):
    """Writes its calls down, and may use another file system."""

    def __init__(self, journal: Journal, *arguments: Any, filesystem: Any = None) -> None:
        super().__init__(*arguments)
        self._journal = journal
        self._filesystem = filesystem

    def initialize(self, shard: ProcessorShard) -> None:
        self.shard = shard
        self.sink = shard.sink(
            str(self._folder),
            SCHEMA,
            max_bytes=self._limits[0],
            max_age=self._limits[1],
            filesystem=self._filesystem,
        )

    def process_records(self, batch: Any, checkpointer: Checkpointer) -> None:
        try:
            super().process_records(batch, checkpointer)
        except BaseException as error:
            self._journal.write(self.shard.id, "failed", (batch, error))
            raise
        self._journal.write(self.shard.id, "process_records", batch)


def test_a_checkpoint_is_never_ahead_of_the_files(scene: Scene, folder: Path) -> None:
    worker = scene.start(
        {"max_records": 10}, processor=functools.partial(Storing, folder, 1000, 0.5)
    )
    with Lake(folder, scene.table) as lake:
        for n in range(300):
            lake.add(scene.kinesis, scene.stream, b"%d" % n, UPPER * (n % 2))
        lake.wait_for_all()
    assert worker.shutdown(PATIENCE)
    assert len(lake.checkpoints) > 2, "they were looked at all the time"
    rows = visible_rows(folder)
    assert len(rows) == 300, "nothing went wrong, so nothing comes twice"
    stored = {shard: [int(r["data"]) for r in rows if r["shardId"] == shard] for shard in lake.put}
    assert all(sorted(numbers) == numbers for numbers in stored.values())
    assert all(
        lease.checkpoint.sequence_number == str(lake.put[lease.shard_id][-1][0])
        for lease in scene.table.leases()
    )


@pytest.fixture
def run(server: LocalServer, stream: str, folder: Path) -> Iterator[Callable[[], Any]]:
    """Starts worker processes; they are killed when the test is over."""
    module = "tests.integration.worker.sink_process"
    command = [sys.executable, "-m", module, server.endpoint_url, stream, str(folder)]
    running: list[subprocess.Popen[bytes]] = []

    def start_one() -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(command))
        return running[-1]

    yield start_one
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.long)])
def test_a_killed_worker_leaves_no_part_of_a_file_and_loses_nothing(
    scene: Scene, folder: Path, run: Callable[[], Any], kills: int
) -> None:
    table = scene.table
    process = run()
    lake = Lake(folder, table)
    lake.add(scene.kinesis, scene.stream, b"before", 0)
    while not folder.exists():  # nor is there a lease table before that
        assert process.poll() is None
        time.sleep(0.05)
    with lake:
        for n in range(200 * kills):
            lake.add(scene.kinesis, scene.stream, b"%d" % n, UPPER * (n % 2))
            if n % 200 == 150:
                # In the middle of something: records come all the time.
                seen = len(lake.checkpoints)
                lake.wait(lambda _, checkpoints, seen=seen: checkpoints > seen)  # type: ignore[misc]
                process.kill()
                process.wait()
                process = run()
        lake.wait_for_all()
        process.terminate()
        assert process.wait(PATIENCE) == 0
    everything = {data for records in lake.put.values() for _, data in records}
    assert {row["data"] for row in visible_rows(folder)} == everything
    assert all(lease.owner is None for lease in table.leases())


def test_files_appear_by_their_age_while_no_record_comes(scene: Scene, folder: Path) -> None:
    scene.start(processor=lambda: Journaled(scene.journal, folder, 2**20, 1.0))
    with Lake(folder, scene.table) as lake:
        lake.add(scene.kinesis, scene.stream, b"the only one", 0)
        lake.wait_for_all()
        lake.wait(lambda _, checkpoints: checkpoints == 1)
    sizes = [
        len(what) for _, call, what in list(scene.journal.entries) if call == "process_records"
    ]
    assert sizes[:2] == [1, 0], "called without records, as the sink was due"
    assert sizes.count(0) == 1, "and not again"


def test_an_age_limit_holds_while_storage_fails_too(scene: Scene, folder: Path) -> None:
    filesystem, faults = flaky()
    faults.fail("move", times=3)
    scene.start(
        {"task_backoff": 0.05},
        processor=lambda: Journaled(scene.journal, folder, 2**20, 0.2, filesystem=filesystem),
    )
    with Lake(folder, scene.table) as lake:
        lake.add(scene.kinesis, scene.stream, b"x", 0)
        lake.wait_for_all()
        lake.wait(lambda _, checkpoints: checkpoints == 1)
    failed = [len(what[0]) for _, call, what in list(scene.journal.entries) if call == "failed"]
    assert failed == [0, 0, 0]
    assert faults.failed == 3
    assert [row["data"] for row in visible_rows(folder)] == [b"x"]


def test_a_shard_that_ends_is_stored_before_its_children_begin(scene: Scene, folder: Path) -> None:
    seen: dict[str, set[bytes]] = {}

    class Looking(Journaled):
        def initialize(self, shard: ProcessorShard) -> None:
            super().initialize(shard)
            seen[shard.id] = {row["data"] for row in visible_rows(folder)}

    for n in range(20):
        scene.put(b"parent %d" % n)
    scene.split()
    scene.put(b"child")
    worker = scene.start(
        {"parent_poll_interval": 0.1}, processor=lambda: Looking(scene.journal, folder, 2**20)
    )
    scene.journal.wait_for_data(b"child")
    parents = {b"parent %d" % n for n in range(20)}
    assert parents <= seen["shardId-000000000002"]
    assert seen[FIRST] == set()
    assert worker.shutdown(PATIENCE)
    assert {row["data"] for row in visible_rows(folder)} == parents | {b"child"}


def test_what_shard_ended_writes_behind_its_checkpoint_is_stored_too(
    scene: Scene, folder: Path
) -> None:
    """Nothing that comes later would store it; storage that fails at first is asked again."""
    filesystem, faults = flaky()
    ended: list[Any] = []

    class Late(Journaled):
        def shard_ended(self, checkpointer: Checkpointer) -> None:
            checkpointer.checkpoint()
            row = {"shardId": self.shard.id, "sequenceNumber": "", "data": b"late"}
            self.sink.write([row])
            faults.fail("open", times=2)
            ended.append((self.sink, row))

    scene.put(b"parent")
    scene.split()
    scene.put(b"child")
    scene.start(
        {"parent_poll_interval": 0.1, "task_backoff": 0.05},
        processor=lambda: Late(scene.journal, folder, 2**20, filesystem=filesystem),
    )
    scene.journal.wait_for_data(b"child")
    eventually(lambda: scene.row().owner is None)
    assert faults.failed == 2
    rows = [row["data"] for row in visible_rows(folder) if row["shardId"] == FIRST]
    assert rows == [b"parent", b"late"]
    ((sink, row),) = ended
    with pytest.raises(LeaseLostError, match="were refused"):
        sink.write([row])


def test_an_object_store(scene: Scene, s3: str) -> None:
    lake = f"s3://lake/records?region=us-east-1&endpoint_override={s3}"
    worker = scene.start(processor=lambda: AtOnce(scene.journal, lake))
    scene.put(b"x")
    scene.put(b"y", UPPER)
    scene.journal.wait_for_data(b"x", b"y")
    assert worker.shutdown(PATIENCE)
    bucket, path = fs.FileSystem.from_uri(lake)
    found = bucket.get_file_info(fs.FileSelector(path, recursive=True))
    names = [info.base_name for info in found if info.is_file]
    assert len(names) == 2
    assert all(name.startswith("part-shardId-") for name in names), "none is hidden"
    stored = [
        pq.read_table(bucket.open_input_file(info.path)).column("data").to_pylist()
        for info in found
        if info.is_file
    ]
    assert sorted(stored) == [[b"x"], [b"y"]]
    assert all(lease.checkpoint.sequence_number.isdecimal() for lease in scene.table.leases())


class AtOnce(Journaling):
    """Stores each batch."""

    def __init__(self, journal: Journal, path: str) -> None:
        super().__init__(journal, on_initialize=self._open, on_records=self._store)
        self._path = path

    def _open(self, shard: ProcessorShard) -> None:
        self._sink = shard.sink(self._path, SCHEMA)

    def _store(self, batch: Any, checkpointer: Checkpointer) -> None:
        self._sink.write(batch.to_arrow().select(SCHEMA.names))
        checkpointer.checkpoint()
