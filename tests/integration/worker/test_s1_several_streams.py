"""S1: an application of several streams keeps their shards, epochs and positions apart."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis import Application, FormerStreams, StreamConfig
from sparkinesis.errors import LeaseTableError, OptionError, StreamNotFoundError
from sparkinesis.metrics.catalogue import (
    STREAM_UNREADABLE,
    STREAMS,
    STREAMS_DELETED,
    STREAMS_FORMER,
)
from sparkinesis.stream.address import StreamIdentifier
from tests.integration.worker.scene import Scene
from tests.journal import Journal, Journaling
from tests.kcl import rows_of
from tests.pace import eventually
from tests.streams import identifier, put
from tests.tallies import Tallied, counted

pytestmark = pytest.mark.usefixtures("often")

Make = Callable[..., Application]


def by_stream(journal: Journal) -> dict[str, list[bytes]]:
    streams = {name for name, call in journal.calls("process_records")}
    return {StreamIdentifier.parse(name).name: journal.data(name) for name in streams}


def test_shards_of_one_id_are_read_apart_and_resumed_at_their_own_checkpoints(scene: Scene) -> None:
    app = scene.several(scene.streams)
    for name in scene.streams:
        put(scene.kinesis, name, [f"{name}-{n}".encode() for n in range(5)], key="k")
    worker = scene.run(app)
    scene.journal.wait(lambda: sum(map(len, by_stream(scene.journal).values())) == 15)
    assert by_stream(scene.journal) == {
        name: [f"{name}-{n}".encode() for n in range(5)] for name in scene.streams
    }
    shard = "shardId-000000000000"
    keys = {f"{identifier(scene.kinesis, name)}:{shard}": name for name in scene.streams}
    assert {one.lease for one in worker.status()} == keys.keys()
    assert {one.stream for one in worker.status()} == set(scene.streams)
    worker.shutdown(10)
    found = scene.rows()
    assert found.keys() == keys.keys()
    for key, name in keys.items():
        assert found[key]["streamName"]["S"] == identifier(scene.kinesis, name)
        assert found[key]["shardId"]["S"] == shard
    put(scene.kinesis, scene.streams[1], [b"later"], key="k")
    scene.run(app)
    scene.journal.wait_for_data(b"later")
    assert sum(map(len, by_stream(scene.journal).values())) == 16


def test_a_stream_comes_goes_and_returns_at_its_checkpoint(scene: Scene) -> None:
    wanted = scene.streams[:1]
    worker = scene.run(scene.several(lambda: list(wanted)))
    put(scene.kinesis, scene.streams[1], [b"1"], key="k")
    wanted.append(scene.streams[1])
    scene.journal.wait_for_data(b"1")
    wanted.remove(scene.streams[1])
    eventually(lambda: scene.streams[1] not in {one.stream for one in worker.status()})
    put(scene.kinesis, scene.streams[1], [b"2"], key="k")
    put(scene.kinesis, scene.streams[0], [b"other"], key="k")
    scene.journal.wait_for_data(b"other")
    wanted.append(scene.streams[1])
    scene.journal.wait_for_data(b"2")
    assert by_stream(scene.journal)[scene.streams[1]] == [b"1", b"2"]


def test_metrics_tell_the_streams_that_cannot_be_read_and_those_that_have_left(
    scene: Scene, tallied: Tallied
) -> None:
    late = f"s-late-{uuid.uuid4().hex[:6]}"
    wanted, deletable = [late, *scene.streams[:2]], list[str]()

    def now() -> tuple[object, ...]:
        """What is told, and the streams that cannot be read."""
        found = counted(tallied.tally, STREAM_UNREADABLE)
        others = (counted(tallied.tally, one) for one in (STREAMS, STREAMS_FORMER, STREAMS_DELETED))
        return *(one.get(()) for one in others), [name for (name,) in found]

    worker = scene.run(
        scene.several(
            lambda: list(wanted),
            options={"metrics": (tallied,)},
            former_streams=FormerStreams(delete_after=0, only=lambda: deletable),
        )
    )
    eventually(lambda: now() == (3, 0, None, [late]))
    missing = worker.streams()[0]
    age = counted(tallied.tally, STREAM_UNREADABLE)[late,]
    assert missing.failing_for is not None
    assert 0 < missing.failing_for <= age
    scene.kinesis.create_stream(StreamName=late, ShardCount=1)
    eventually(lambda: now() == (3, 0, None, []))
    wanted.remove(scene.streams[1])
    eventually(lambda: now() == (2, 1, None, []))
    deletable.append(scene.streams[1])
    eventually(lambda: now() == (2, 0, 1, []))


def test_no_stream_at_all_is_an_error(scene: Scene) -> None:
    app = scene.application(stream=None, streams=["missing-1", "missing-2"])
    with pytest.raises(StreamNotFoundError, match="missing-1"):
        app.worker()


def test_the_processor_and_the_position_of_a_stream_are_its_own(scene: Scene) -> None:
    other = Journal()
    put(scene.kinesis, scene.streams[0], [b"before"], key="k")
    put(scene.kinesis, scene.streams[1], [b"before"], key="k")
    latest = StreamConfig(
        scene.streams[1], processor=lambda: Journaling(other), initial_position="latest"
    )
    scene.start(stream=None, streams=[scene.streams[0], latest])
    put(scene.kinesis, scene.streams[1], [b"after"], key="k")
    other.wait_for_data(b"after")
    scene.journal.wait_for_data(b"before")
    assert other.data() == [b"after"]
    assert scene.journal.data() == [b"before"]
    (shard,) = {what.stream_id for _, call, what in other.entries if call == "initialize"}
    assert shard == identifier(scene.kinesis, scene.streams[1])


def test_a_table_of_one_stream_is_not_taken_for_one_of_several_nor_the_reverse(
    scene: Scene,
) -> None:
    one, several = scene.application(), scene.application(stream=None, streams=scene.streams)
    scene.run(one).shutdown(10)
    before = scene.rows()
    with pytest.raises(LeaseTableError, match=r"single stream.*Java KCL.*convert-leases"):
        several.worker().start()
    assert scene.rows() == before
    other = f"t-{uuid.uuid4().hex[:6]}"
    scene.start(stream=None, streams=scene.streams, table_name=other).shutdown(10)
    before = rows_of(scene.dynamodb, other)
    with pytest.raises(LeaseTableError, match=r"several streams.*Java KCL.*convert-leases"):
        scene.application(table_name=other).worker().start()
    assert rows_of(scene.dynamodb, other) == before


async def asynchronous_streams() -> list[str]:
    return ["a"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"streams": []}, "nothing to read"),
        ({"streams": "flights"}, "takes a list"),
        ({"streams": [7]}, "takes names"),
        ({"streams": ["a", "a"]}, "twice"),
        ({"streams": ["a"], "stream": "b"}, "either stream or streams"),
        ({"streams": ["a"], "processor": None}, "no processor"),
        ({"stream": "a", "former_streams": FormerStreams(1.0)}, "only with streams"),
        ({"streams": asynchronous_streams}, "is `async def`.*asyncio.run"),
        ({"streams": lambda region: [region]}, "without arguments: missing.*'region'"),
    ],
)
def test_bad_streams_are_refused_before_any_call(
    scene: Scene, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        scene.application(**{"stream": None, **given})
