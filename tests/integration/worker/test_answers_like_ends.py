"""Answers of an open shard that look like those of a closed one: its worker reads on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkinesis.local import Fault
from tests.failing import Failing
from tests.integration.worker.scene import Scene, told
from tests.pace import eventually

RETRIEVALS = ("polling", "efo")
LIKE_AN_END = Fault(
    omit=frozenset({"NextShardIterator", "ContinuationSequenceNumber", "ChildShards"})
)


@pytest.fixture(autouse=True)
def like_ends(scene: Scene) -> Iterator[None]:
    reads = {"GetRecords", "SubscribeToShard"}
    scene.server.kinesis.faults = Failing(reads, then=LIKE_AN_END, stream=scene.stream)
    yield
    scene.server.kinesis.faults = None


def test_a_shard_is_read_until_it_is_closed(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.put(b"0")
    scene.start()
    for number in range(1, 4):
        scene.journal.wait_for_data(b"%d" % (number - 1))
        scene.put(b"%d" % number)
    scene.journal.wait_for_data(b"3")
    # By fan-out, an event without records has to come first.
    eventually(lambda: told(caplog, "ListShards shows the shard as open"))
    assert scene.journal.calls("shard_ended") == []
    scene.split()
    scene.put(b"of a child")
    scene.journal.wait_for_data(b"of a child")
    assert [name for _, name in scene.journal.calls("shard_ended")] == ["shard_ended"]
    assert scene.journal.data() == [b"0", b"1", b"2", b"3", b"of a child"]
