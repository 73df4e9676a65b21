"""`sparkinesis dead-letters` for an application of several streams: each record has its own."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory
from sparkinesis.worker.on_error import DeadLetter
from tests.command import place_of
from tests.integration.worker.scene import FIRST, Scene
from tests.integration.worker.test_dead_letters_command import (
    NUMBER,
    TroubleError,
    objects,
    run,
)
from tests.integration.worker.test_dead_letters_command import write_letter as write
from tests.journal import PATIENCE
from tests.streams import identifier, make_anew, put, records_of


@pytest.fixture
def streams(streams: list[str]) -> list[str]:
    return streams[1:]


@pytest.fixture
def place(server: LocalServer) -> list[str]:
    return place_of(server)


def write_letter(folder: Path, stream: str, stream_id: str | None, number: int = NUMBER) -> None:
    data = f"{stream_id or stream}-{number - NUMBER}".encode()
    write(folder, number, stream_id=stream_id, partitionKey="k", data=data, stream=stream)


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
        write_letter(tmp_path, name, identifier(kinesis, name))
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
    write_letter(tmp_path, streams[1], identifier(kinesis, streams[1]), NUMBER + 1)
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
        write_letter(tmp_path, name, each)
    write_letter(tmp_path, "flights", None)
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
    write_letter(tmp_path, streams[0], identifier(kinesis, streams[0]))
    write_letter(tmp_path, "flights", None)
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
    write_letter(tmp_path, streams[0], old)
    write_letter(tmp_path, streams[1], identifier(kinesis, streams[1]))
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
        write_letter(tmp_path, name, identifier(kinesis, name))
    kinesis.delete_stream(StreamName=streams[1])
    result = run(str(tmp_path), "--put-back", "--yes", *place, code=1)
    assert f"There is no stream '{streams[1]}'" in result.stderr
    assert datas(kinesis, streams[0]) == []
