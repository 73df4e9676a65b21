"""L8: workers meet a stream that was made anew, and applications that share a table."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from sparkinesis.errors import LeaseTableError
from sparkinesis.events import StreamMadeAnew
from sparkinesis.local import Call, Fault
from tests.command import Command, failure, objects
from tests.integration.worker.scene import Scene, checkpoint
from tests.journal import PATIENCE, Journal
from tests.kcl import rows_of
from tests.pace import eventually
from tests.streams import active_shards, make_anew, put_at

RETRIEVALS = ("polling", "efo")


def put_into_each(scene: Scene, data: str) -> list[bytes]:
    """A record in each open shard; returns their data."""
    shards = active_shards(scene.kinesis, scene.stream)
    datas = [f"{data} {number}".encode() for number in range(len(shards))]
    for one, shard in zip(datas, shards, strict=True):
        put_at(scene.kinesis, scene.stream, one, int(shard["HashKeyRange"]["StartingHashKey"]))
    return datas


@pytest.mark.parametrize("initial", ["trim_horizon", "latest"])
def test_a_stream_made_anew_with_more_shards_is_read_by_a_worker_that_runs(
    scene: Scene, initial: str
) -> None:
    events: list[Any] = []
    scene.start({"on_event": events.append}, on_records=checkpoint, initial_position=initial)
    eventually(lambda: all(scene.owners().values()))
    scene.journal.wait_for_data(*put_into_each(scene, "old"))
    make_anew(scene.kinesis, scene.stream, 4)
    new = put_into_each(scene, "new")
    scene.journal.wait_for_data(*new)
    eventually(lambda: [type(one) for one in events].count(StreamMadeAnew) == 1)
    assert sorted(row.shard_id for row in scene.table.leases()) == [
        f"shardId-{n:012d}" for n in range(4)
    ]
    (mark,) = {str(row.mark) for row in scene.table.leases()}
    assert mark.split(":")[2] == scene.stream


def test_a_stream_made_anew_is_read_whole_where_its_shards_had_no_checkpoint(scene: Scene) -> None:
    """Its first records would do for the old leases: no position is refused."""
    scene.start()
    scene.journal.wait_for_data(*put_into_each(scene, "old"))
    make_anew(scene.kinesis, scene.stream, 4)
    scene.journal.wait_for_data(*put_into_each(scene, "new"))


@pytest.mark.parametrize("retrieval", ["polling"])
def test_two_workers_follow_a_stream_that_was_made_anew(scene: Scene) -> None:
    for _ in range(2):
        scene.start(on_records=checkpoint)
    eventually(lambda: len(set(scene.owners().values()) - {None}) == 2)
    scene.journal.wait_for_data(*put_into_each(scene, "old"))
    make_anew(scene.kinesis, scene.stream, 2)
    scene.journal.wait_for_data(*put_into_each(scene, "new"))
    eventually(lambda: len(set(scene.owners().values()) - {None}) == 2)


@pytest.mark.parametrize("retrieval", ["polling"])
def test_of_two_applications_of_one_name_the_second_is_refused(scene: Scene) -> None:
    """Also while the first one runs, which goes on."""
    other = f"s-{uuid.uuid4().hex[:8]}"
    scene.kinesis.create_stream(StreamName=other, ShardCount=2)
    first = scene.start(on_records=checkpoint)
    scene.journal.wait_for_data(*put_into_each(scene, "a"))
    written: list[str] = []

    def watch(call: Call) -> Fault | None:
        if call.operation in {"PutItem", "DeleteItem"} and call.stream == scene.stream:
            written.append(call.operation)
        return None

    scene.server.kinesis.faults = watch
    theirs = Journal()
    with pytest.raises(LeaseTableError, match=f"'{scene.stream}' .*'{other}'"):
        scene.start(journal=theirs, stream=other)
    assert not written
    assert theirs.calls() == []
    scene.journal.wait_for_data(*put_into_each(scene, "b"))
    assert first.shutdown(PATIENCE)
    before = rows_of(scene.dynamodb, scene.stream)
    with pytest.raises(LeaseTableError, match="another table_name"):
        scene.start(journal=theirs, stream=other)
    assert rows_of(scene.dynamodb, scene.stream) == before


@pytest.mark.parametrize("retrieval", ["polling"])
def test_commands_tell_leases_of_another_stream(scene: Scene, call: Command, dynamodb: Any) -> None:
    other = f"s-{uuid.uuid4().hex[:8]}"
    scene.kinesis.create_stream(StreamName=other, ShardCount=2)
    assert scene.start(on_records=checkpoint).shutdown(PATIENCE)
    before = rows_of(dynamodb, scene.stream)

    def findings(stream: str) -> list[str]:
        found = objects(call("doctor", "--stream", stream, "--json"), stream == other)
        return [one["what"] for one in found if one["check"] == "leases"]

    both = f"the leases of stream '{scene.stream}'", f"this application reads stream '{other}'"
    for text in (
        failure(call("reset", "--stream", other, "--to", "latest", "--yes")),
        " ".join(findings(other)),
    ):
        assert all(part in text for part in both)
    convert = ("convert-leases", "--to", "several", "--failover-time", "0.1", "--yes")
    error = failure(call(*convert, "--stream", other))
    assert f":{scene.stream}:" in error
    assert "Nothing was written" in error
    make_anew(scene.kinesis, scene.stream, 2)
    error = failure(call("reset", "--stream", scene.stream, "--to", "latest", "--yes"))
    assert "created at another time: it was deleted and made anew. Nothing was written" in error
    assert f"2 leases are of a stream '{scene.stream}'" in " ".join(findings(scene.stream))
    assert rows_of(dynamodb, scene.stream) == before
