"""S1 beyond the worker: files, dead letters, log lines and queries keep several streams apart."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkinesis import DeadLetter, ProcessorShard, RecordProcessor
from sparkinesis.errors import CheckpointError, LeaseLostError
from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.stored import DeadLetters
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory
from tests.engine import Query
from tests.integration.worker.scene import Scene
from tests.journal import Journaling
from tests.lake import visible_files
from tests.pace import eventually
from tests.streams import identifier, put

pytestmark = pytest.mark.usefixtures("often")


SHARD = "shardId-000000000000"


@pytest.fixture
def streams(streams: list[str]) -> list[str]:
    return streams[1:]


@pytest.fixture
def query(server: LocalServer) -> Callable[..., Query]:
    def make(table: str, streams: list[str], **options: str) -> Query:
        return Query(
            streamName=",".join(streams),
            endpoint=server.endpoint_url,
            region="us-east-1",
            initialPosition=f"application:{table}",
            **options,
        )

    return make


def data_of(running: Query) -> dict[str, list[bytes]]:
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for batch in running.drain():
        for row in batch.rows:
            found[row["stream"]].append(row["data"])
    return dict(found)


# --- a query goes on where the workers stood


def test_a_query_goes_on_in_each_stream_where_the_workers_stood_inside_an_aggregate(
    scene: Scene, query: Callable[..., Query], streams: list[str]
) -> None:
    done = {streams[0]: 1, streams[1]: 3}
    """The user records of each stream's aggregate up to which the application checkpoints."""

    def checkpoint(stream: str) -> Callable[[RecordBatch, Checkpointer], None]:
        return lambda batch, checkpointer: checkpointer.checkpoint(batch.records[done[stream]])

    class Each(Journaling):
        def __init__(self) -> None:
            super().__init__(scene.journal)

        def initialize(self, shard: ProcessorShard) -> None:
            self._on_records = checkpoint(shard.stream)
            super().initialize(shard)

    for name in streams:
        users = [("k", None, f"{name} {n}".encode()) for n in range(5)]
        (blob,) = aggregate(users)
        scene.kinesis.put_record(StreamName=name, Data=blob.data, PartitionKey="k")
    worker = scene.start(stream=None, streams=streams, processor=Each)
    scene.journal.wait(lambda: len(scene.journal.data()) == 10)
    worker.shutdown(10)
    for name in streams:
        put(scene.kinesis, name, [f"{name} later".encode()], key="k")

    left = {
        name: [
            *(f"{name} {n}".encode() for n in range(done[name] + 1, 5)),
            f"{name} later".encode(),
        ]
        for name in streams
    }
    running = query(scene.stream, streams)
    assert data_of(running) == left
    running = query(scene.stream, streams[1:])
    assert data_of(running) == {streams[1]: left[streams[1]]}


# --- dead letters and log lines


def test_a_record_that_fails_is_told_and_kept_with_its_stream(
    scene: Scene, streams: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(RecordProcessor):
        def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            if any(one.data == b"bad" for one in batch.records):
                raise ValueError("no")
            checkpointer.checkpoint()

    caplog.set_level(logging.INFO, "sparkinesis")
    worker = scene.start(
        stream=None,
        streams=streams,
        processor=Failing,
        on_error=DeadLetter(DeadLetterDirectory(tmp_path)),
    )
    for name in streams:
        put(scene.kinesis, name, [b"bad"], key="k")
    eventually(lambda: len(visible_files(tmp_path)) == 2)
    names = {identifier(scene.kinesis, name) for name in streams}
    letters = DeadLetters.at(str(tmp_path)).contents().letters
    assert {letter.about.stream_id for letter in letters} == names
    (failure,) = worker.failures()
    assert set(failure.shard_ids) == {f"{name}:{SHARD}" for name in names}
    worker.shutdown(10)
    lines = [one.getMessage() for one in caplog.records]
    for name in names:
        shard = f"shard {SHARD} of stream '{name}' in us-east-1"
        assert any(line.startswith("process_records raised on") and shard in line for line in lines)
        assert any(line.startswith("Stored record") and shard in line for line in lines)
        assert any(line.startswith(f"Took {name}:{SHARD}, ") for line in lines)


def test_errors_of_a_checkpointer_name_the_stream(scene: Scene, streams: list[str]) -> None:
    kept: dict[str, Checkpointer] = {}
    texts: dict[str, str] = {}

    class Keeping(Journaling):
        def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            try:
                checkpointer.commit_pending()
            except CheckpointError as error:
                texts[self.shard.stream_id or ""] = str(error)
            kept[self.shard.stream_id or ""] = checkpointer
            super().process_records(batch, checkpointer)

    worker = scene.start(stream=None, streams=streams, processor=lambda: Keeping(scene.journal))
    for name in streams:
        put(scene.kinesis, name, [name.encode()], key="k")
    scene.journal.wait_for_data(*(name.encode() for name in streams))
    worker.shutdown(10)
    names = {identifier(scene.kinesis, name) for name in streams}
    assert kept.keys() == names
    for name, checkpointer in kept.items():
        assert texts[name].startswith(f"No checkpoint of {SHARD} of {name} is prepared")
        with pytest.raises(LeaseLostError, match=f"for shard {SHARD} of {name} in the lease table"):
            checkpointer.checkpoint()
