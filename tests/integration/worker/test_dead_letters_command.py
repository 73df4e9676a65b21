"""`sparkinesis dead-letters`: what record processors gave up, listed, shown and put back."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Fault
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.dead_letters.stored import DeadLetters, put_back
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory, FailedRecords
from sparkinesis.worker.on_error import DeadLetter
from tests import command
from tests.command import Result, asked, call, place_of
from tests.failing import Failing
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene
from tests.journal import PATIENCE
from tests.streams import create_auto, identifier, make_anew, put, records_of, shard_ids

NUMBER = 49590338271490256608559692538361571095921575989136588898


class TroubleError(Exception):
    pass


def run(*arguments: str, code: int = 0) -> Result:
    """Run the command; it ends with ``code``."""
    result = call("dead-letters", *arguments)
    assert result.returncode == code, result.stderr
    return result


def objects(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    return command.objects(run(*arguments, "--json", code=code), code)


def write_letter(
    folder: Path,
    number: int = NUMBER,
    error: str = "no",
    stream_id: str | None = None,
    **given: Any,
) -> None:
    """A dead letter of one record, as a worker writes it; ``given`` are other values of columns."""
    row = {
        "partitionKey": f"key-{number % 1000}",
        "data": b"data-%d" % (number - NUMBER),
        "stream": "flights",
        "shardId": FIRST,
        "sequenceNumber": str(number),
        "subSequenceNumber": 0,
        **given,
    }
    batch = RecordBatch(pa.RecordBatch.from_pylist([row], schema=USER_RECORD_SCHEMA), None)
    trouble = TroubleError(error)
    failed = FailedRecords(batch, trouble, "app", row["stream"], row["shardId"], stream_id)
    DeadLetterDirectory(folder, clock=lambda: 1795249800.5)(failed)


def all_of(kinesis: Any, stream: str) -> Counter[tuple[str, str, bytes]]:
    return Counter(
        (shard, record["PartitionKey"], record["Data"])
        for shard in (FIRST, SECOND)
        for record in records_of(kinesis, stream, shard)
    )


@pytest.fixture
def into(server: LocalServer, stream: str) -> list[str]:
    """Options that put into the stream."""
    return ["--put-back", "--stream", stream, *place_of(server)]


def test_from_a_processor_that_fails_to_a_bucket_and_back_into_the_stream(
    scene: Scene, s3: str, into: list[str]
) -> None:
    place = f"s3://lake/dead?region=us-east-1&endpoint_override={s3}"
    bad = [b"plain", b'{"city":"\\ud800"}', b"\xff\x00\x1b[2J"]

    def refuse(batch: Any, checkpointer: Any) -> None:
        if found := [record.data for record in batch.records if record.data in bad]:
            raise TroubleError(f"cannot process {json.loads(bad[1])} nor {found[0]!r}")

    scene.put(bad[0])
    (packed,) = aggregate([("agg", None, b"fine"), ("agg", str(UPPER), bad[1])])
    scene.put(packed.data)
    # Behind the bad ones: once these are processed, the bad ones are dealt with.
    scene.put(b"first's last")
    scene.put(bad[2], UPPER, key="other")
    scene.put(b"second's last", UPPER)
    on_error = DeadLetter(DeadLetterDirectory(place))
    worker = scene.start(on_records=refuse, on_error=on_error)
    scene.journal.wait_for_data(b"fine", b"first's last", b"second's last")
    assert worker.shutdown(PATIENCE)

    listed = objects(place)
    files = [(FIRST, 1), (FIRST, 1), (SECOND, 1)]
    assert [(one["shard"], one["records"]) for one in listed] == files
    assert [one["first"]["sub_sequence_number"] for one in listed] == [0, 1, 0]
    assert all(one["first"] == one["last"] for one in listed)
    assert {(one["stream"], one["application"]) for one in listed} == {(scene.stream,) * 2}
    assert all("{'city': '\\ud800'}" in one["error"] for one in listed)
    shown = objects(place, "--show")
    assert [one["partition_key"] for one in shown] == ["k", "agg", "other"]
    assert [one["explicit_hash_key"] for one in shown] == [None, str(UPPER), None]
    assert [one.get("data") for one in shown] == ["plain", '{"city":"\\ud800"}', None]
    assert shown[2]["data_base64"] == "/wAbWzJK"
    assert all("in refuse\n" in one["traceback"] for one in shown)
    one_file = place.replace("dead?", f"dead/{listed[1]['file']}?")
    assert objects(one_file, "--show") == shown[1:2]

    before = all_of(scene.kinesis, scene.stream)
    said = run(place, *into, "--yes").stdout
    assert said.startswith(
        f"Put 3 records of 3 files into the stream '{scene.stream}' in us-east-1"
    )
    assert "s3://lake/dead/put-back" in said
    again = all_of(scene.kinesis, scene.stream) - before
    # What was put with an explicit hash key, and not in an aggregate, is known by its key only.
    assert {(key, data) for _, key, data in again} == {
        ("k", bad[0]),
        ("agg", bad[1]),
        ("other", bad[2]),
    }
    assert again[SECOND, "agg", bad[1]] == 1, "where its explicit hash key belongs"
    assert again.total() == 3
    bucket, path = fs.FileSystem.from_uri(place)
    found = bucket.get_file_info(fs.FileSelector(path, recursive=True))
    assert sorted(info.path for info in found if info.is_file) == sorted(
        f"{path}/put-back/{one['file']}" for one in listed
    )
    assert objects(place) == [], "nothing is put twice"
    assert "There are no dead letters in s3://lake/dead." in run(place, *into, "--yes").stdout
    assert all_of(scene.kinesis, scene.stream) == before + again


def test_the_list_is_in_the_order_in_which_records_were_put(tmp_path: Path) -> None:
    write_letter(tmp_path, NUMBER + 10**20, shardId=SECOND)
    write_letter(tmp_path, NUMBER, subSequenceNumber=10)
    write_letter(tmp_path, NUMBER, subSequenceNumber=9, error="x" * 200)
    (tmp_path / ".hidden.parquet").write_bytes(b"half a fi")
    (tmp_path / "put-back").mkdir()
    lines = run(str(tmp_path)).stdout.splitlines()
    assert " ".join(lines[0].split()) == "shard records sequence numbers failed error file"
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[1:]]
    tail = f"…{str(NUMBER)[-10:]}"
    assert [row[:3] for row in rows] == [
        [FIRST, "1", f"{tail}:9"],
        [FIRST, "1", f"{tail}:10"],
        [SECOND, "1", f"{tail}:0"],
    ]
    assert {row[3] for row in rows} == {"2026-11-21T08:30:00.500Z"}
    assert rows[0][4] == f"TroubleError: {'x' * 86}..."
    assert all((tmp_path / row[5]).is_file() for row in rows)


def test_nothing_of_a_record_or_an_error_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    evil = "a\x1b]0;owned\x07\r\u202eb"
    write_letter(tmp_path, error=evil, partitionKey=evil, data=b"one\n\ttwo\n" + "\u00fc".encode())
    write_letter(tmp_path, NUMBER + 1, data=evil.encode())
    for arguments in ([], ["--show"]):
        said = run(str(tmp_path), *arguments).stdout
        assert all(c.isprintable() or c == "\n" for c in said)
        assert "a\\x1b]0;owned\\x07\\r\\u202eb" in said
    assert "data: one\n      \\ttwo\n      \u00fc\n" in said
    assert "data base64: YRtdMDtvd25lZAcN4oCuYg==" in said


def test_what_is_no_dead_letter_is_told_and_does_not_hide_the_others(
    scene: Scene, tmp_path: Path, into: list[str]
) -> None:
    write_letter(tmp_path)
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 and no more")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "other.parquet")
    (tmp_path / "notes.txt").touch()
    for arguments in ([], ["--show"], [*into, "--yes"]):
        result = run(str(tmp_path), *arguments, code=1)
        assert str(NUMBER)[-10:] in result.stdout or "Put 1 record of 1 file" in result.stdout
        junk, other, end = result.stderr.splitlines()
        assert junk.startswith("junk.parquet was skipped: ArrowInvalid: ")
        assert other.startswith("other.parquet was skipped: it is not a dead letter")
        assert end.startswith("sparkinesis dead-letters: 2 files in ")
    assert all_of(scene.kinesis, scene.stream).total() == 1


def test_what_is_not_all_there_can_be_listed_and_is_neither_shown_nor_put(
    scene: Scene, tmp_path: Path, into: list[str]
) -> None:
    write_letter(tmp_path)
    (path,) = tmp_path.iterdir()
    pq.write_table(pq.read_table(path).drop_columns(["data"]), path)
    assert len(objects(str(tmp_path))) == 1
    for arguments in (["--show"], [*into, "--yes"]):
        result = run(str(tmp_path), *arguments, code=1)
        assert "has no column 'data'" in result.stderr
    assert path.exists()
    assert all_of(scene.kinesis, scene.stream).total() == 0


def test_an_empty_directory_is_no_error_and_a_missing_one_is(tmp_path: Path) -> None:
    assert run(str(tmp_path)).stdout == f"There are no dead letters in {tmp_path}.\n"
    assert objects(str(tmp_path)) == []
    for path in (str(tmp_path / "nope"), "memory://nope"):
        result = run(path, code=1)
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert f"There is no directory or file {path}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--put-back"], "--put-back needs --stream"),
        (["--put-back", "--stream", "a b", "--yes"], "stream is 'a b'"),
        (["--put-back", "--stream", "s", "--show"], "exclude each other"),
        (["--stream", "s"], "--stream needs --put-back"),
        (["--delete"], "--delete needs --put-back"),
        (["--put-back", "--stream", "s"], "no terminal"),
        (["--put-back", "--stream", "s", "--yes", "--region", "mars"], "region is 'mars'"),
    ],
)
def test_options_that_make_no_sense_are_one_line_and_change_nothing(
    tmp_path: Path, server: LocalServer, *, arguments: list[str], why: str
) -> None:
    write_letter(tmp_path)
    before, calls = list(tmp_path.iterdir()), len(server.kinesis.calls.select())
    given = [*arguments, *([] if "--region" in arguments else ["--region", "us-east-1"])]
    result = run(str(tmp_path), *given, "--endpoint", server.endpoint_url, code=1)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert why in result.stderr
    assert list(tmp_path.iterdir()) == before
    assert len(server.kinesis.calls.select()) == calls


@pytest.mark.parametrize(("answer", "is_put"), [("y\n", True), ("\n", False)])
def test_on_a_terminal_it_shows_what_it_will_do_and_asks(
    scene: Scene, tmp_path: Path, *, into: list[str], answer: str, is_put: bool
) -> None:
    write_letter(tmp_path, stream="fl\x1b[2Jights")
    (file,) = tmp_path.iterdir()
    result = asked(answer, "dead-letters", str(tmp_path), *into, "--delete")
    assert FIRST in result.stdout
    question = (
        f"Put 1 record of 1 file, of stream fl\\x1b[2Jights, into the stream '{scene.stream}'"
    )
    assert question in result.stderr
    assert result.returncode == (0 if is_put else 1)
    assert all_of(scene.kinesis, scene.stream).total() == is_put
    assert file.exists() != is_put, "--delete"
    assert not (tmp_path / "put-back").exists()


def test_what_the_stream_does_not_take_is_left_and_nothing_is_put_twice(
    scene: Scene, tmp_path: Path, *, into: list[str]
) -> None:
    for number in range(3):
        write_letter(tmp_path, NUMBER + number)
    place = DeadLetters.at(str(tmp_path))
    letters = place.contents().letters
    address = StreamAddress(scene.stream, None, "us-east-1", scene.server.endpoint_url)
    full = Fault("ProvisionedThroughputExceededException", entries=frozenset(range(500)))
    scene.faults(Failing("PutRecords", None, then=full, stream=scene.stream))
    retry = Backoff(base=0.01, cap=0.02, give_up_after=0.3)
    found = put_back(place, letters, address, delete=False, retry=retry)
    scene.faults(None)
    put = all_of(scene.kinesis, scene.stream)
    assert len(found.done) == put.total() < 3
    assert len(found.left) == 3 - len(found.done)
    assert "ProvisionedThroughputExceededException" in str(found.error)
    assert {path.name for path in tmp_path.glob("*.parquet")} == set(found.left)
    assert {path.name for path in tmp_path.glob("put-back/*")} == {f.file for f in found.done}

    rest = objects(str(tmp_path), *into, "--yes")
    assert [one["put_back"] for one in rest] == [True] * len(found.left)
    counts = {data: n for (_, _, data), n in all_of(scene.kinesis, scene.stream).items()}
    assert counts == {b"data-%d" % number: 1 for number in range(3)}


def test_a_record_that_kinesis_refuses_is_left_and_the_others_are_put(
    scene: Scene, tmp_path: Path, into: list[str]
) -> None:
    """Its keys come from an aggregate of a foreign producer."""
    write_letter(tmp_path)
    write_letter(tmp_path, NUMBER + 1, explicitHashKey="abc")
    write_letter(tmp_path, NUMBER + 2, partitionKey="")
    write_letter(tmp_path, NUMBER + 3, partitionKey="x" * 257)
    write_letter(tmp_path, NUMBER + 4)
    result = run(str(tmp_path), *into, "--yes", code=1)
    assert result.stdout.startswith("Put 2 records of 2 files into")
    *left, end = result.stderr.splitlines()
    assert [why.split("cannot be put: ")[1].split(";")[0] for why in left] == [
        "its explicit hash key is 'abc'",
        "its partition key has 0 characters",
        "its partition key has 257 characters",
    ]
    assert "3 files could not be put back" in end
    assert {data for _, _, data in all_of(scene.kinesis, scene.stream)} == {b"data-0", b"data-4"}
    found = objects(str(tmp_path), *into, "--yes", code=1)
    assert [one["put_back"] for one in found] == [False] * 3
    assert "has 0 characters" in found[1]["why_not"]


def test_a_record_without_a_key_gets_one_where_the_stream_needs_it(
    scene: Scene, tmp_path: Path, into: list[str]
) -> None:
    auto = f"auto-{scene.stream}"
    create_auto(scene.kinesis, auto)
    for target, has_key in ((auto, False), (scene.stream, True)):
        write_letter(tmp_path, partitionKey=None)
        assert objects(str(tmp_path), "--show")[0]["partition_key"] is None
        run(str(tmp_path), *(target if each == scene.stream else each for each in into), "--yes")
        ids = shard_ids(scene.kinesis, target)
        (record,) = [record for shard in ids for record in records_of(scene.kinesis, target, shard)]
        assert ("PartitionKey" in record) == has_key
        assert record["Data"] == b"data-0"


def test_a_file_that_cannot_be_moved_away_says_that_its_records_are_in_the_stream(
    scene: Scene, tmp_path: Path, into: list[str]
) -> None:
    write_letter(tmp_path)
    (tmp_path / "put-back").write_text("a file where a directory has to be")
    result = run(str(tmp_path), *into, "--yes", code=1)
    assert "are in the stream, but the file" in result.stderr
    assert all_of(scene.kinesis, scene.stream).total() == 1


def test_records_of_a_key_go_back_in_order_though_the_stream_refuses_some_at_first(
    scene: Scene, tmp_path: Path
) -> None:
    for number in range(6):
        write_letter(tmp_path, NUMBER + number, partitionKey=f"key-{number % 2}")
    place = DeadLetters.at(str(tmp_path))
    address = StreamAddress(scene.stream, None, "us-east-1", scene.server.endpoint_url)
    one = Fault("ProvisionedThroughputExceededException", entries=frozenset({0}))
    scene.faults(Failing("PutRecords", one, times=2, stream=scene.stream))
    retry = Backoff(base=0.05, uniform=lambda _, high: high)
    found = put_back(place, place.contents().letters, address, delete=True, retry=retry)
    scene.faults(None)
    assert len(found.done) == 6
    for key in ("key-0", "key-1"):
        put = [
            record["Data"]
            for shard in (FIRST, SECOND)
            for record in records_of(scene.kinesis, scene.stream, shard)
            if record["PartitionKey"] == key
        ]
        assert put == sorted(put), put
        assert len(put) == 3


@pytest.fixture
def streams(streams: list[str]) -> list[str]:
    return streams[1:]


@pytest.fixture
def place(server: LocalServer) -> list[str]:
    return place_of(server)


def letter_of(folder: Path, stream: str, stream_id: str | None, number: int = NUMBER) -> None:
    data = f"{stream_id or stream}-{number - NUMBER}".encode()
    write_letter(folder, number, stream_id=stream_id, partitionKey="k", data=data, stream=stream)


def datas(kinesis: Any, stream: str) -> list[bytes]:
    return [record["Data"] for record in records_of(kinesis, stream, FIRST)]


def test_records_that_failed_go_back_each_into_its_own_stream(
    scene: Scene, streams: list[str], tmp_path: Path, place: list[str]
) -> None:
    def refuse(batch: Any, checkpointer: Any) -> None:
        if any(record.data.startswith(b"bad") for record in batch.records):
            raise TroubleError("bad")

    for name in streams:
        put(scene.kinesis, name, [f"bad {name}".encode(), f"good {name}".encode()], key="k")
    worker = scene.start(
        stream=None,
        streams=streams,
        on_records=refuse,
        on_error=DeadLetter(DeadLetterDirectory(tmp_path)),
    )
    scene.journal.wait_for_data(*(f"good {name}".encode() for name in streams))
    assert worker.shutdown(PATIENCE)

    listed = objects(str(tmp_path))
    assert [(one["stream"], one["identifier"]) for one in listed] == [
        (name, identifier(scene.kinesis, name)) for name in streams
    ]
    heads = [line.split()[0] for line in run(str(tmp_path)).stdout.splitlines()]
    assert heads == ["stream", *streams]
    said = run(str(tmp_path), "--put-back", "--yes", *place).stdout.splitlines()
    assert [line.split(" in us-east-1")[0] for line in said] == [
        f"Put 1 record of 1 file into the stream '{name}' of account 123456789012"
        for name in streams
    ]
    for name in streams:
        bad, good = f"bad {name}".encode(), f"good {name}".encode()
        assert datas(scene.kinesis, name) == [bad, good, bad]
    assert objects(str(tmp_path)) == []


def test_records_of_several_streams_are_not_put_into_one_by_mistake(
    tmp_path: Path, kinesis: Any, streams: list[str], place: list[str]
) -> None:
    for name in streams:
        letter_of(tmp_path, name, identifier(kinesis, name))
    target = f"repair-{uuid.uuid4().hex[:6]}"
    kinesis.create_stream(StreamName=target, ShardCount=1)
    into = ("--put-back", "--stream", target, "--yes", *place)
    result = run(str(tmp_path), *into, code=1)
    assert result.stdout == ""
    assert f"are from 2 streams: {', '.join(streams)}. Leave --stream out" in result.stderr
    assert datas(kinesis, target) == []
    assert len(objects(str(tmp_path))) == 2

    run(str(tmp_path), *into, "--from", streams[1])
    assert datas(kinesis, target) == [f"{identifier(kinesis, streams[1])}-0".encode()]
    (left,) = objects(str(tmp_path))
    assert left["stream"] == streams[0]
    letter_of(tmp_path, streams[1], identifier(kinesis, streams[1]), NUMBER + 1)
    both = ("--from", streams[0], "--from", identifier(kinesis, streams[1]))
    run(str(tmp_path), *into, *both)
    assert len(datas(kinesis, target)) == 3
    assert objects(str(tmp_path)) == []


def test_letters_are_chosen_by_their_stream(
    tmp_path: Path, kinesis: Any, streams: list[str]
) -> None:
    name = streams[0]
    ids = [identifier(kinesis, name), f"999999999999:{name}:1700000000"]
    for each in ids:
        letter_of(tmp_path, name, each)
    letter_of(tmp_path, "flights", None)
    shown = {line.split()[0] for line in run(str(tmp_path)).stdout.splitlines()[1:]}
    assert shown == {*ids, "flights"}, "two of a name are shown by their identifiers"
    assert len(objects(str(tmp_path), "--from", name)) == 2
    for each in ids:
        (one,) = objects(str(tmp_path), "--from", each)
        assert one["identifier"] == each
        (row,) = objects(str(tmp_path), "--show", "--from", each)
        assert row["data"] == f"{each}-0"
        assert f"  stream       {each}" in run(str(tmp_path), "--show", "--from", each).stdout
    (one,) = objects(str(tmp_path), "--from", f"arn:aws:kinesis:x-y-1:999999999999:stream/{name}")
    assert one["identifier"] == ids[1]
    (one,) = objects(str(tmp_path), "--from", "flights")
    assert one["identifier"] is None
    result = run(str(tmp_path), "--from", "nope", code=1)
    assert "is from the stream 'nope'. There are letters from flights, " in result.stderr


def test_a_file_that_does_not_say_its_stream_needs_one(
    tmp_path: Path, kinesis: Any, streams: list[str], place: list[str]
) -> None:
    letter_of(tmp_path, streams[0], identifier(kinesis, streams[0]))
    letter_of(tmp_path, "flights", None)
    result = run(str(tmp_path), "--put-back", "--yes", *place, code=1)
    assert (
        "--put-back needs --stream, the stream to put the records into: flights-" in result.stderr
    )
    assert datas(kinesis, streams[0]) == []
    run(str(tmp_path), "--put-back", "--yes", "--from", streams[0], *place)
    assert len(datas(kinesis, streams[0])) == 1
    (left,) = objects(str(tmp_path))
    assert left["stream"] == "flights"


def test_records_of_a_deleted_stream_are_not_put_into_the_new_one_of_its_name(
    tmp_path: Path, kinesis: Any, streams: list[str], place: list[str]
) -> None:
    old, new = make_anew(kinesis, streams[0])
    letter_of(tmp_path, streams[0], old)
    letter_of(tmp_path, streams[1], identifier(kinesis, streams[1]))
    result = run(str(tmp_path), "--put-back", "--yes", "--json", *place, code=1)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {one["identifier"]: one["put_back"] for one in found} == {
        old: False,
        identifier(kinesis, streams[1]): True,
    }
    (why,) = [one["why_not"] for one in found if not one["put_back"]]
    assert f"its stream was deleted, and made anew as {new}. Name a stream" in why
    assert datas(kinesis, streams[0]) == []
    into = ("--put-back", "--yes", "--stream", streams[0], "--from", old, *place)
    run(str(tmp_path), *into)
    assert datas(kinesis, streams[0]) == [f"{old}-0".encode()]


def test_a_stream_that_is_gone_is_told_before_anything_is_put(
    tmp_path: Path, kinesis: Any, streams: list[str], place: list[str]
) -> None:
    for name in streams:
        letter_of(tmp_path, name, identifier(kinesis, name))
    kinesis.delete_stream(StreamName=streams[1])
    result = run(str(tmp_path), "--put-back", "--yes", *place, code=1)
    assert f"There is no stream '{streams[1]}'" in result.stderr
    assert datas(kinesis, streams[0]) == []
