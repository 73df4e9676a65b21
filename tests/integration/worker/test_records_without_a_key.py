"""Records that were put without a partition key, as a stream may allow that distributes itself."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkinesis.compat.kclpy.kcl import make_factory
from sparkinesis.compat.kclpy.v2.processor import RecordProcessorBase as Version2
from sparkinesis.compat.kclpy.v3.processor import RecordProcessorBase as Version3
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory, DeadLetterStream
from sparkinesis.worker.on_error import DeadLetter
from sparkinesis.worker.processors.processor import RecordProcessor
from tests.integration.worker.scene import Scene
from tests.lake import visible_files, visible_rows
from tests.streams import create_auto, records_of, shard_ids

RETRIEVALS = ("polling", "efo")


@pytest.fixture
def stream(kinesis: Any) -> str:
    """A stream of four shards that distributes records itself; its name is the application's."""
    name = f"auto-{uuid.uuid4().hex[:8]}"
    create_auto(kinesis, name)
    return name


def put_without(scene: Scene, *datas: bytes) -> None:
    answer = scene.kinesis.put_records(
        StreamName=scene.stream, Records=[{"Data": data} for data in datas]
    )
    assert answer["FailedRecordCount"] == 0


def test_they_are_delivered_with_none_for_a_key(scene: Scene) -> None:
    """Beside records with one, and beside an aggregate, whose user records have their own."""
    (blob,) = aggregate([("a", None, b"a's"), ("b", "7", b"b's")])
    plain = [b"%d" % n for n in range(12)]
    put_without(scene, *plain, blob.data, blob.data[:-1] + b"?")
    scene.kinesis.put_record(StreamName=scene.stream, Data=b"keyed", PartitionKey="k")
    scene.start()
    scene.journal.wait_for_data(*plain, b"a's", b"b's", b"keyed", blob.data[:-1] + b"?")
    keys = {record.data: record.partition_key for record in scene.journal.records()}
    assert keys == {
        **dict.fromkeys(plain),
        blob.data[:-1] + b"?": None,
        b"a's": "a",
        b"b's": "b",
        b"keyed": "k",
    }
    columns = [
        batch.to_arrow() for _, call, batch in scene.journal.entries if call == "process_records"
    ]
    for batch in columns:
        batch.validate(full=True)
    assert {
        data: key
        for batch in columns
        for data, key in zip(
            batch.column("data").to_pylist(), batch.column("partitionKey").to_pylist(), strict=True
        )
    } == keys


@pytest.mark.parametrize("retrieval", ["polling"])
def test_dead_letters_of_them_are_stored(scene: Scene, tmp_path: Path) -> None:
    """In a stream, which may need keys: a random one; in a directory: null."""

    def fail(*_: object) -> None:
        raise RuntimeError

    dead = f"dead-{scene.stream}"
    scene.kinesis.create_stream(StreamName=dead, ShardCount=2)
    to_stream = DeadLetterStream(dead, "us-east-1", scene.server.endpoint_url)
    to_directory = DeadLetterDirectory(tmp_path)

    def both(failed: Any) -> None:
        to_stream(failed)
        to_directory(failed)
        scene.journal.write(failed.shard_id, "dead", failed)

    datas = [b"%d" % n for n in range(20)]
    put_without(scene, *datas)
    scene.start(on_records=fail, on_error=DeadLetter(both))
    scene.journal.wait(lambda: len(scene.journal.calls("dead")) == len(datas))
    shards = shard_ids(scene.kinesis, dead)
    stored = [records_of(scene.kinesis, dead, shard) for shard in shards]
    assert sorted(r["Data"] for records in stored for r in records) == sorted(datas)
    assert len({r["PartitionKey"] for records in stored for r in records}) == len(datas)
    assert all(stored), "random keys lead to both shards"
    rows = [row for file in tmp_path.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert {row["data"]: row["partitionKey"] for row in rows} == dict.fromkeys(datas)


@pytest.mark.parametrize("retrieval", ["polling"])
def test_a_parquet_sink_stores_them_also_by_key(scene: Scene, tmp_path: Path) -> None:
    """In the directory in which Spark looks for nulls."""
    schema = pa.schema([("partitionKey", pa.string()), ("data", pa.binary())])

    class Stores(RecordProcessor):
        def initialize(self, shard: Any) -> None:
            self.sink = shard.sink(tmp_path, schema, partition_by=["partitionKey"])

        def process_records(self, batch: Any, checkpointer: Any) -> None:
            self.sink.write(batch.to_arrow().select(schema.names))
            checkpointer.checkpoint()
            scene.journal.write("", "process_records", batch)

    put_without(scene, b"1", b"2", b"3")
    scene.kinesis.put_record(StreamName=scene.stream, Data=b"keyed", PartitionKey="k")
    scene.start(processor=Stores)
    scene.journal.wait_for_data(b"1", b"2", b"3", b"keyed")
    assert sorted(row["data"] for row in visible_rows(tmp_path)) == [b"1", b"2", b"3", b"keyed"]
    folders = {Path(file).parts[0] for file in visible_files(tmp_path)}
    assert folders == {"partitionKey=__HIVE_DEFAULT_PARTITION__", "partitionKey=k"}


@pytest.mark.parametrize("retrieval", ["polling"])
@pytest.mark.parametrize("base", [Version2, Version3])
def test_a_processor_of_amazon_kclpy_gets_none_as_from_the_daemon(scene: Scene, base: Any) -> None:
    class Processor(base):  # type: ignore[misc]
        def process_records(self, given: Any) -> None:
            for record in given.records:
                assert record.get("partitionKey") is record.partition_key
                scene.journal.write("", "record", (record.binary_data, record.partition_key))

        def shutdown(self, given: Any) -> None: ...
        def lease_lost(self, given: Any) -> None: ...
        def shard_ended(self, given: Any) -> None: ...

    put_without(scene, b"1", b"2")
    scene.start(processor=make_factory(Processor))
    scene.journal.wait(lambda: len(scene.journal.calls("record")) == 2)
    assert sorted(what for _, _, what in scene.journal.entries) == [(b"1", None), (b"2", None)]
