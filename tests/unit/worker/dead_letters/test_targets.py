"""Dead letters that are files: whatever the records and the error are, wherever the files go."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkinesis.errors import OptionError, SinkUnavailableError
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.dead_letters.stored import summary
from sparkinesis.worker.dead_letters.targets import (
    DeadLetterDirectory,
    DeadLetterStream,
    FailedRecords,
)
from tests.flaky import flaky
from tests.lake import note_syncs

SHARD = "shardId-000000000007"
NUMBER = "49590338271490256608559692538361571095921575989136588898"
ERROR = ValueError("no")


def failed(
    error: BaseException = ERROR,
    *,
    stream: str = "s",
    shard: str = SHARD,
    data: bytes = b"data",
    stream_id: str | None = None,
    number: str = NUMBER,
) -> FailedRecords:
    record = Record(data=data, partition_key="k", sequence_number=number)
    batch, _ = make_batch([record], stream=stream, shard_id=shard, millis_behind_latest=0)
    return FailedRecords(batch, error, "app", stream, shard, stream_id)


def stored(folder: Path) -> pa.Table:
    (path,) = folder.iterdir()
    return pq.read_table(path)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError('{"city":"\ud800"}'), r'ValueError: {"city":"\ud800"}'),
        (ValueError("a\0b"), "ValueError: a\0b"),
        (ValueError("Z\u00fcrich \U0001f600"), "ValueError: Z\u00fcrich \U0001f600"),
    ],
    ids=lambda value: type(value).__name__.encode("ascii", "replace").decode(),
)
def test_an_error_of_any_text_is_stored(error: BaseException, text: str, tmp_path: Path) -> None:
    DeadLetterDirectory(tmp_path)(failed(error))
    table = stored(tmp_path)
    assert table.schema.metadata[b"error"].decode() == text
    assert table.column("data").to_pylist() == [b"data"]


def test_an_error_of_any_length_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    DeadLetterDirectory(tmp_path)(failed(ValueError("begin" + "x" * 10_000_000 + "end")))
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size < 100_000
    told = pq.read_table(path).schema.metadata[b"error"]
    assert told.startswith(b"ValueError: begin")
    assert told.endswith(b"end"), "the ends tell most"


def test_the_longest_names_make_a_file_name_that_file_systems_take(tmp_path: Path) -> None:
    """Streams and shards have 128 characters at most, and sequence numbers 128 digits."""
    for stream in ("a" * 127 + "b", "a" * 127 + "c"):
        for _ in range(2):
            DeadLetterDirectory(tmp_path)(failed(stream=stream, shard="s" * 128))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2, "one for the records of each stream, the same each time"
    assert all(name.startswith("a" * 100) for name in names)


def test_the_file_of_an_application_of_one_stream_is_named_and_filled_as_ever(
    tmp_path: Path,
) -> None:
    DeadLetterDirectory(tmp_path, clock=lambda: 0.0)(failed(stream="flights"))
    (path,) = tmp_path.iterdir()
    assert path.name == f"flights-{SHARD}-{NUMBER}-0-to-{NUMBER}-0.parquet"
    assert pq.read_schema(path).metadata.keys() == {
        *(b"error", b"traceback", b"application", b"failed_at")
    }


ID = "123456789012:flights:1763700000"
OTHERS = {
    "another account": "999999999999:flights:1763700000",
    "made anew": "123456789012:flights:1763700001",
    "another name": "123456789012:orders:1763700000",
    "an application of one stream": None,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_records_of_two_streams_at_the_same_place_are_two_files(
    tmp_path: Path, other: str | None
) -> None:
    """Their shards have the same ids, and nothing keeps their sequence numbers apart."""
    target = DeadLetterDirectory(tmp_path)
    for stream_id in (ID, other):
        name = "flights" if stream_id is None else stream_id.split(":")[1]
        target(failed(stream=name, stream_id=stream_id))
    found = [summary(pq.read_table(path)) for path in tmp_path.iterdir()]
    assert {one.stream_id for one in found} == {ID, other}
    target(failed(ValueError("again"), stream="flights", stream_id=ID))
    again = [summary(pq.read_table(path)) for path in tmp_path.iterdir()]
    assert {one.stream_id: one.error for one in again} == {
        ID: "ValueError: again",
        other: "ValueError: no",
    }


def test_a_file_and_its_directories_survive_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "dead"
    synced = note_syncs(monkeypatch, folder)
    DeadLetterDirectory(folder)(failed())
    (file,) = folder.iterdir()
    assert synced[0] == (file.stat().st_ino, 0), "the file, before it can be seen"
    for parent in (folder, folder.parent, tmp_path):
        assert (parent.stat().st_ino, 1) in synced, "behind the move"


@pytest.mark.parametrize("call", ["open", "move"])
def test_what_cannot_be_stored_is_told_and_leaves_nothing(tmp_path: Path, call: str) -> None:
    filesystem, faults = flaky()
    target = DeadLetterDirectory(str(tmp_path), filesystem)
    faults.fail(call)
    with pytest.raises(SinkUnavailableError, match="no answer") as caught:
        target(failed())
    assert str(tmp_path) in str(caught.value)
    assert not list(tmp_path.iterdir()), "no hidden file either"
    faults.mend()
    target(failed())
    assert stored(tmp_path).num_rows == 1


@pytest.mark.parametrize("place", ["path", "memory", "moves onto nothing"])
def test_a_repetition_replaces_the_file_wherever_it_is(tmp_path: Path, place: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    folder = f"/{tmp_path.name}-{place.replace(' ', '-')}"
    if place == "path":
        target = DeadLetterDirectory(tmp_path / "dead")
    elif place == "memory":
        target = DeadLetterDirectory(f"memory:/{folder}")
    else:
        target = DeadLetterDirectory(folder, StrictMemory())
    for text in ("first", "second"):
        target(failed(ValueError(text)))
    if place == "path":
        told = summary(stored(tmp_path / "dead"))
    else:
        (name,) = memory.ls(folder, detail=False)
        told = summary(pq.read_table(memory.open(name)))
    assert told.error == "ValueError: second"


def StrictMemory() -> Any:
    from fsspec.implementations.memory import MemoryFileSystem  # noqa: PLC0415

    class Strict(MemoryFileSystem):  # type: ignore[misc]
        cachable = False

        def mv(self, path1: str, path2: str, **options: Any) -> None:
            if self.exists(path2):
                raise FileExistsError(path2)
            super().mv(path1, path2, **options)

    return Strict()


# --- what cannot be a target


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([None], "path is None"),
        (["nosuch://bucket/x"], "nosuch://bucket/x cannot be used|Install fsspec"),
        (["s3://"], "s3:// has no bucket"),
        (["s3://key:hush@bucket/x"], "s3://bucket/x contains a password"),
        (["x", "s3"], "filesystem is of type str"),
    ],
)
def test_a_directory_that_is_none_is_refused_at_once(arguments: list[Any], why: str) -> None:
    with pytest.raises(OptionError, match=why) as caught:
        DeadLetterDirectory(*arguments)
    assert "hush" not in str(caught.value)


def test_an_object_store_is_not_asked_before_the_first_dead_letter() -> None:
    # Nobody is there; and this may be a machine that is not meant to reach it.
    target = DeadLetterDirectory("s3://lake/dead?region=us-east-1&endpoint_override=127.0.0.1:1")
    assert not target.is_local
    assert pickle.loads(pickle.dumps(target)) == target


def test_a_place_on_this_machine_is_known_by_any_name(tmp_path: Path) -> None:
    fs = pytest.importorskip("pyarrow").fs
    subtree = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for arguments in ([tmp_path], [f"file://{tmp_path}"], ["dead", subtree]):
        assert DeadLetterDirectory(*arguments).is_local


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"stream": "a b"}, "stream is 'a b'"),
        ({"stream": None}, "stream of DeadLetterStream is None"),
        ({"stream": "arn:aws:s3:::x"}, "a stream's ARN looks like"),
        ({"region": "mars"}, "region is 'mars'"),
        ({"region": 7}, "region of DeadLetterStream is 7"),
        ({"endpoint": "localhost"}, "endpoint is 'localhost'"),
        ({"credentials": "me"}, "CredentialSource"),
    ],
)
def test_a_stream_that_is_none_is_refused_at_once(given: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        DeadLetterStream(**{"stream": "dead", **given})
