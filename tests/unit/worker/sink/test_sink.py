"""A sink's rows: which are taken, when they are due, taken back and stored, and where."""

from __future__ import annotations

import itertools
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableUnavailableError,
    OptionError,
    SchemaMismatchError,
    SinkUnavailableError,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.metrics.tally import Distribution, Tally
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.on_error import Skip
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from sparkinesis.worker.sink.sink import ParquetSink, ShardSinks
from sparkinesis.worker.sink.storage import open_storage
from tests.clocks import MovedClock
from tests.flaky import flaky
from tests.lake import note_syncs, visible_files, visible_rows
from tests.unit.worker.delivering import SHARD, Held, Shard

N = pa.schema([("n", pa.int64())])
KEYED = pa.schema([("key", pa.int8()), ("n", pa.int64())])
ALL = ExtendedSequenceNumber("9")


def shard(
    sinks: ShardSinks | None = None, shard_id: str = SHARD, stream_id: str | None = None
) -> ProcessorShard:
    stream = "s" if stream_id is None else stream_id.split(":")[1]
    start = ExtendedSequenceNumber("TRIM_HORIZON")
    return ProcessorShard(
        shard_id, "app", stream, "w", start, stream_id=stream_id, sinks=sinks or ShardSinks()
    )


def flush(sinks: ShardSinks) -> None:
    sinks.flush(ExtendedSequenceNumber("1"), ALL)


def with_n(name: str, kind: pa.DataType) -> pa.Schema:
    return pa.schema([("n", pa.int64()), (name, kind)])


def numbers(folder: Path) -> list[int]:
    return [row["n"] for row in visible_rows(folder)]


# --- several streams


def test_the_files_and_errors_of_one_of_several_streams_name_it_as_a_whole(tmp_path: Path) -> None:
    stream_id = "123456789012:flights:1763700000"
    sinks = ShardSinks(unique=lambda: "u")
    sink = shard(sinks, stream_id=stream_id).sink(tmp_path, N)
    sink.write([{"n": 7}])
    flush(sinks)
    (file,) = visible_files(tmp_path)
    assert file == f"part-flights@123456789012.1763700000-{SHARD}-00001-u.parquet"
    labels = pq.read_schema(tmp_path / file).metadata
    assert labels[b"sparkinesis.stream"] == b"flights"
    assert labels[b"sparkinesis.stream_id"] == stream_id.encode()
    sinks.close()
    with pytest.raises(LeaseLostError, match=f"shard {SHARD} of stream {stream_id} "):
        sink.write([{"n": 1}])


def test_the_longest_names_are_names_that_file_systems_take(tmp_path: Path) -> None:
    stream_id = f"123456789012:{'x' * 128}:1763700000"
    for number in range(2):
        sinks = ShardSinks(unique=lambda: "u" * 32)
        shard(sinks, f"{'s' * 127}{number}", stream_id).sink(tmp_path, N).write([{"n": number}])
        flush(sinks)
    files = visible_files(tmp_path)
    assert len(files) == 2
    assert max(len(f".{file}") for file in files) <= 255


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"schema": {"n": "int"}}, "must be a pyarrow.Schema"),
        ({"schema": with_n("n", pa.string())}, "two columns 'n'"),
        ({"schema": pa.schema([("n", pa.month_day_nano_interval())])}, "cannot be written"),
        ({"partition_by": ["day"]}, "'day', which is not in the schema"),
        ({"partition_by": "day"}, "give a list of columns"),
        ({"partition_by": None}, "partition_by is None"),
        ({"partition_by": ["n"]}, "no column that is not in partition_by"),
        (
            {"schema": with_n("x", pa.float64()), "partition_by": ["x"]},
            "'x', which is of type double",
        ),
        ({"schema": with_n(".x", pa.int8()), "partition_by": [".x"]}, "hidden"),
        ({"schema": with_n("_x", pa.int8()), "partition_by": ["_x"]}, "hidden"),
        ({"schema": with_n("x", pa.int8()), "partition_by": ["x", "x"]}, "twice"),
        ({"max_bytes": 0}, "max_bytes is 0"),
        ({"max_bytes": "64m"}, "max_bytes is '64m'"),
        ({"max_age": -1}, "max_age is -1"),
        ({"max_age": float("nan")}, "max_age is nan"),
        ({"compression": "zip"}, "compression 'zip'"),
        ({"path": ""}, "path is ''"),
        ({"path": 7}, "path is 7"),
        ({"path": "nosuch://bucket/x"}, "nosuch://bucket/x.*(Install fsspec|nosuch)"),
        ({"path": "s3://key:hush@bucket/x"}, "s3://bucket/x contains a password"),
        ({"path": "s3a://key:hu/sh#hush@bucket/x"}, "s3a://bucket/x contains a password"),
        ({"path": "s3a://b x?secret_key=hush"}, "s3a://b x cannot be used: Cannot parse"),
        ({"path": "s3://b:1/x@y?secret_key=hush&z=1"}, "s3://b:1/x@y cannot be used"),
        ({"path": "s3://bucket/x", "filesystem": fs.LocalFileSystem()}, "path within"),
        ({"filesystem": "s3"}, "filesystem is of type str"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], why: str
) -> None:
    given = {"path": tmp_path / "lake", "schema": N, **arguments}
    with pytest.raises(OptionError, match=why) as caught:
        shard().sink(given.pop("path"), given.pop("schema"), **given)
    assert "hush" not in str(caught.value)
    assert not list(tmp_path.iterdir())


# --- rows


TYPED = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("n", pa.int32()), ("at", pa.timestamp("us"))]
)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{"id": "a", "n": 2**40}], "Column 'n' is int32 .* row 0"),
        ([{"id": "a"}, {"id": "b", "n": "x"}], "Column 'n' is int32 .* row 1"),
        ([{"id": "a", "m": 1}], "a column 'm', which is not in the sink's schema"),
        ([{"n": 1}], "Column 'id' has 1 nulls"),
        (pa.table({"id": ["a"], "n": [1]}), "no column 'at'"),
        (pa.table({"id": ["a"], "n": [1.5], "at": [0]}), "Column 'n' is of type double"),
        (pa.table({"id": ["a"], "n": [1], "at": [0], "z": [0]}), "a column 'z'"),
        (pa.table([["a"], ["b"], [1], [0]], names=["id", "id", "n", "at"]), "same name"),
        ("rows", "of type str"),
        ([1, 2], "of type list"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_column(tmp_path: Path, rows: Any, why: str) -> None:
    sink = shard().sink(tmp_path, TYPED)
    with pytest.raises(SchemaMismatchError, match=why):
        sink.write(rows)
    assert sink.buffered_rows == 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.field("i", pa.int8(), nullable=False)), [None]),
        (pa.struct([pa.field("i", pa.int8(), nullable=False)]), {"i": None}),
        (pa.timestamp("s"), 2**62),
    ],
)
def test_what_parquet_refuses_is_refused_at_once(
    tmp_path: Path, kind: pa.DataType, value: object
) -> None:
    """Later it would be taken for storage that fails, and hold up the shard for ever."""
    sinks = ShardSinks()
    sink = shard(sinks).sink(tmp_path, with_n("x", kind))
    for rows in ([{"x": value}], pa.table({"n": [1], "x": pa.array([value], kind)})):
        with pytest.raises(SchemaMismatchError, match=r"Column 'x' .* cannot be"):
            sink.write(rows)
    assert sink.buffered_rows == 0
    sink.write([{"n": 1, "x": None}])
    flush(sinks)
    assert numbers(tmp_path) == [1]


def test_rows_are_cast_and_what_a_dict_lacks_is_null(tmp_path: Path) -> None:
    sinks = ShardSinks()
    sink = shard(sinks).sink(tmp_path, TYPED)
    batch = pa.record_batch({"at": pa.array([0], pa.timestamp("s")), "id": ["a"], "n": [1]})
    sink.write(batch)
    sink.write(pa.Table.from_batches([batch]))
    sink.write([{"id": "b"}])
    sink.write([])
    assert sink.buffered_rows == 3
    assert not list(tmp_path.iterdir()), "it is in memory only"
    flush(sinks)
    (file,) = visible_files(tmp_path)
    stored = pq.read_table(tmp_path / file)
    assert stored.schema.equals(TYPED)
    assert stored.column("id").to_pylist() == ["a", "a", "b"]
    assert stored.column("n").to_pylist() == [1, 1, None]
    assert sink.buffered_rows == sink.buffered_bytes == 0


def test_a_file_tells_where_it_is_from(tmp_path: Path) -> None:
    schema = N.with_metadata({"owner": "us"})
    sinks = ShardSinks(unique=iter("xyz").__next__)
    sink = shard(sinks).sink(tmp_path, schema)
    for n in (1, 2):
        sink.write([{"n": n}])
        flush(sinks)
    flush(sinks)
    assert visible_files(tmp_path) == [
        f"part-{SHARD}-00001-x.parquet",
        f"part-{SHARD}-00002-y.parquet",
    ]
    metadata = pq.read_schema(tmp_path / f"part-{SHARD}-00001-x.parquet").metadata
    assert metadata == {
        b"owner": b"us",
        b"sparkinesis.application": b"app",
        b"sparkinesis.stream": b"s",
        b"sparkinesis.shard": SHARD.encode(),
        b"sparkinesis.worker": b"w",
        b"sparkinesis.after": b"1:0",
        b"sparkinesis.until": b"9:0",
    }


# --- limits


@pytest.mark.parametrize(("given", "stored"), [("gzip", "GZIP"), (None, "UNCOMPRESSED")])
def test_files_are_compressed_as_asked_for(tmp_path: Path, given: str | None, stored: str) -> None:
    sinks = ShardSinks()
    shard(sinks).sink(tmp_path, N, compression=given).write([{"n": 1}])
    flush(sinks)
    (name,) = visible_files(tmp_path)
    assert pq.read_metadata(tmp_path / name).row_group(0).column(0).compression == stored


def test_a_sink_is_due_by_the_age_of_its_oldest_row(tmp_path: Path) -> None:
    clock = MovedClock()
    sinks = ShardSinks(clock)
    sink = shard(sinks).sink(tmp_path, N, max_age=50.0)
    due = []
    for n, seconds in enumerate((1e6, 49, 1)):  # nothing is there; not yet; now
        clock.now += seconds
        due.append((sink.is_due, sinks.is_due))
        sink.write([{"n": n}])
    assert due == [(False, False), (False, False), (True, True)]
    flush(sinks)
    assert not sinks.is_due


def test_a_sink_is_due_by_size_and_a_huge_write_makes_several_files(tmp_path: Path) -> None:
    sinks = ShardSinks()
    sink = shard(sinks).sink(tmp_path, N, max_bytes=1000)
    rows = pa.table({"n": range(100)})
    due = []
    for _ in range(4):
        sink.write(rows)
        due.append((sink.buffered_bytes, sink.is_due))
    assert due == [(800, False), (1600, True), (2400, True), (3200, True)]
    flush(sinks)
    assert len(visible_files(tmp_path)) == 4
    assert sorted(numbers(tmp_path)) == sorted([*range(100)] * 4)


# --- partitions


def test_rows_go_to_directories_as_sparks_do(tmp_path: Path) -> None:
    schema = pa.schema(
        [("name", pa.string()), ("day", pa.date32()), ("n", pa.int64()), ("late", pa.bool_())]
    )
    sinks = ShardSinks()
    sink = shard(sinks).sink(tmp_path, schema, partition_by=["day", "name", "late"])
    odd = "a/b=c%d:e\u00e9 {f}\n"
    days = [date(2013, 1, 1), date(2013, 12, 31), None]
    names = ["x", odd, "", None]
    rows = [
        {"n": n, "day": day, "name": name, "late": n % 2 == 0}
        for n, (day, name) in enumerate(itertools.product(days, names))
    ]
    sink.write(rows)
    sink.write(rows)
    flush(sinks)
    found: dict[str, list[int]] = {}
    for file in visible_files(tmp_path):
        stored = pq.ParquetFile(tmp_path / file).read()
        assert stored.column_names == ["n"]
        place = str(Path(file).parent)
        assert place not in found, "one file for each"
        found[place] = stored.column("n").to_pylist()
    null = "__HIVE_DEFAULT_PARTITION__"
    escaped = "a%2Fb%3Dc%25d%3Ae\u00e9 %7Bf}%0A"
    expected: set[str] = {
        f"day={row['day'] or null}/name={escaped if row['name'] == odd else row['name'] or null}/"
        f"late={str(row['late']).lower()}"
        for row in rows
    }
    assert found.keys() == expected
    assert sorted(n for each in found.values() for n in each) == sorted([*range(12)] * 2)
    assert found["day=2013-01-01/name=x/late=true"] == [0, 0]
    assert sorted(found[f"day={null}/name={null}/late=true"]) == [10, 10]
    assert sorted(found[f"day={null}/name={null}/late=false"]) == [11, 11]


def test_rows_keep_their_order_within_a_directory(tmp_path: Path) -> None:
    sinks = ShardSinks()
    sink = shard(sinks).sink(tmp_path, KEYED, partition_by=["key"])
    sink.write(pa.table({"key": [n * 7 % 5 for n in range(1000)], "n": range(1000)}))
    flush(sinks)
    for key in range(5):
        (file,) = visible_files(tmp_path / f"key={key}")
        stored = pq.ParquetFile(tmp_path / f"key={key}" / file).read().column("n").to_pylist()
        assert stored == [n for n in range(1000) if n * 7 % 5 == key]


def test_a_value_too_long_for_a_directory_is_the_records_fault(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    sink = shard().sink(tmp_path, schema, partition_by=["key"])
    sink.write([{"key": "k" * 251, "n": 1}])
    with pytest.raises(SchemaMismatchError, match="Column 'key' has a value of 84 characters"):
        sink.write([{"key": "/" * 84, "n": 1}])
    assert sink.buffered_rows == 1


# --- storing


def test_all_files_of_all_sinks_are_written_before_any_is_shown(tmp_path: Path) -> None:
    filesystem, faults = flaky()
    sinks = ShardSinks()
    sink = shard(sinks).sink(f"{tmp_path}/a", N, filesystem=filesystem, max_bytes=8)
    other = shard(sinks).sink(f"{tmp_path}/b", N, filesystem=filesystem)
    sink.write([{"n": 1}, {"n": 2}])
    other.write([{"n": 3}])
    faults.fail("open", after=2)
    with pytest.raises(SinkUnavailableError, match=f"shard {SHARD} of stream s .*/b: .*no answer"):
        flush(sinks)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing is left"
    assert (sink.buffered_rows, other.buffered_rows) == (2, 1)
    faults.fail("move", after=1)
    with pytest.raises(SinkUnavailableError):
        flush(sinks)
    assert len(visible_files(tmp_path)) == 1
    assert not list(tmp_path.rglob(".*"))
    faults.mend()
    flush(sinks)
    assert sorted(numbers(tmp_path / "a")) in ([1, 1, 2], [1, 2, 2])
    assert numbers(tmp_path / "b") == [3]
    assert [call for call, _ in faults.calls[-6:]] == ["open"] * 3 + ["move"] * 3
    moved = [path for call, path in faults.calls if call == "move"]
    assert len(set(moved)) == len(moved), "no name is used twice"
    written = [Path(path).name for call, path in faults.calls if call == "open"]
    assert all(name.startswith(".") for name in written), "Spark ignores these"


@pytest.mark.parametrize("kind", ["mock", "fsspec"])
def test_other_file_systems(kind: str) -> None:
    sinks = ShardSinks()
    filesystem: Any = None
    if kind == "mock":
        filesystem, _ = fs.FileSystem.from_uri("mock:///")
        path, reader = "lake", filesystem
    else:
        memory = pytest.importorskip("fsspec").filesystem("memory")
        path, reader = "memory://lake", fs.PyFileSystem(fs.FSSpecHandler(memory))
    sink = shard(sinks).sink(path, KEYED, partition_by=["key"], filesystem=filesystem)
    for n in range(3):
        sink.write([{"key": 1, "n": n}])
        flush(sinks)
    found = reader.get_file_info(fs.FileSelector("lake", recursive=True))
    files = [info.path for info in found if info.is_file]
    assert len(files) == 3
    assert all("/key=1/part-" in f"/{file}" for file in files)
    stored = [pq.read_table(reader.open_input_file(file)).column("n")[0].as_py() for file in files]
    assert sorted(stored) == [0, 1, 2]


def test_a_local_file_system_is_known_by_any_name(tmp_path: Path) -> None:
    """Or else its files would not be synced to the disk."""
    subtree = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for storage in (
        open_storage(tmp_path),
        open_storage(str(tmp_path)),
        open_storage(f"file://{tmp_path}"),
        open_storage(".", fs.SubTreeFileSystem("/", subtree)),
    ):
        assert isinstance(storage.filesystem, fs.LocalFileSystem)
        assert Path(storage.root) == tmp_path


def test_files_are_synced_before_they_are_shown_and_directories_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = note_syncs(monkeypatch, tmp_path)
    sinks = ShardSinks()
    sink = shard(sinks).sink(tmp_path / "new" / "lake", KEYED, partition_by=["key"])
    sink.write([{"key": key, "n": key} for key in range(2)])
    flush(sinks)
    files = {path.stat().st_ino for path in tmp_path.rglob("*.parquet")}
    folders = {path.stat().st_ino for path in tmp_path.rglob("*") if path.is_dir()}
    assert {(file, 0) for file in files} == {each for each in synced if each[1] == 0}
    assert {(folder, 2) for folder in {*folders, tmp_path.stat().st_ino}} <= {*synced}


# --- with checkpoints


class Seeing(Held):
    """A lease at its start, which notes what can be seen at each checkpoint."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.is_down = False
        self.seen: list[tuple[str, list[int]]] = []

    def checkpoint(self, at: Any, timestamp_ms: int | None = None, **more: Any) -> None:
        if self.is_down:
            raise LeaseTableUnavailableError("no answer")
        super().checkpoint(at, timestamp_ms, **more)
        self.seen.append((at.sequence_number, sorted(numbers(self.folder))))


class Storing(RecordProcessor):
    """Writes a row for each record; checkpoints after some, and fails on others."""

    def __init__(self, sink: ParquetSink) -> None:
        self.sink = sink
        self.checkpoint_after: set[str] = set()
        self.fail_on: set[str] = set()

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        for record in batch.records:
            self.sink.write([{"n": int(record.sequence_number)}])
            if record.sequence_number in self.checkpoint_after:
                checkpointer.checkpoint(record)
            if record.sequence_number in self.fail_on:
                raise ValueError("bad")


class Case(Shard):
    """A shard from its deliverer to its files."""

    held: Seeing

    def __init__(self, folder: Path) -> None:
        sinks = ShardSinks()
        self.sink = shard(sinks).sink(folder, N)
        self.storing = Storing(self.sink)
        super().__init__(Skip(), held=Seeing(folder), sinks=sinks, processor=self.storing)

    def deliver(self, *records: int) -> None:
        self.add(*records)
        while self.deliverer:
            self.setting.now += self.deliverer.deliver()


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize(
    ("checkpoint_after", "seen"),
    [
        (set(), [("5", [1, 2, 3, 5])]),
        ({"3"}, [("3", [1, 2, 3]), ("5", [1, 2, 3, 5])]),
    ],
    ids=["", "but for what a checkpoint inside the call has stored"],
)
def test_what_a_failed_call_wrote_is_taken_back(
    case: Case, checkpoint_after: set[str], seen: list[tuple[str, list[int]]]
) -> None:
    case.deliver(1)
    case.storing.checkpoint_after, case.storing.fail_on = checkpoint_after, {"4"}
    case.deliver(2, 3, 4, 5)
    case.checkpointer.checkpoint()
    assert case.held.seen == seen


def test_what_another_thread_wrote_meanwhile_is_not_taken_back(case: Case) -> None:
    """It may be of records that do not come again: twice is better than not at all."""

    def write_aside(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        aside = threading.Thread(target=case.sink.write, args=([{"n": 1}],))
        aside.start()
        aside.join()
        Storing.process_records(case.storing, batch, checkpointer)

    case.storing.process_records = write_aside  # type: ignore[method-assign]
    case.storing.fail_on = {"2"}
    case.deliver(2)
    case.checkpointer.checkpoint()
    assert case.held.seen == [("2", [1])]


def test_rows_stored_without_their_checkpoint_are_not_stored_again(case: Case) -> None:
    case.deliver(1)
    case.held.is_down = True
    with pytest.raises(LeaseTableUnavailableError):
        case.checkpointer.checkpoint()
    case.held.is_down = False
    case.checkpointer.checkpoint()
    assert case.held.seen == [("1", [1])]


def test_commits_are_measured_and_what_is_not_stored_does_not_count(tmp_path: Path) -> None:
    tally, clock = Tally(), MovedClock()
    sinks = ShardSinks(clock, metrics=tally, stream="flights")
    filesystem, faults = flaky()
    sink = shard(sinks).sink(str(tmp_path), N, max_bytes=1000, filesystem=filesystem)
    sink.write(pa.table({"n": range(300)}))
    faults.fail("move")
    with pytest.raises(SinkUnavailableError):
        flush(sinks)
    faults.mend()
    flush(sinks)
    assert len(visible_files(tmp_path)) == 3
    counts = {
        (one.metric, *one.labels): one.value.count
        if isinstance(one.value, Distribution)
        else one.value
        for one in tally.series()
    }
    assert counts == {
        ("sink.files", "flights"): 3,
        ("sink.rows", "flights"): 300,
        ("sink.commit.duration", "flights", "failed"): 1,
        ("sink.commit.duration", "flights", "ok"): 1,
    }
