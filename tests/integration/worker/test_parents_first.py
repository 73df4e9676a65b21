"""``parents_first=False``: children are read while their parents are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.worker.scene import Scene
from tests.journal import PATIENCE, Journal, Journaling
from tests.pace import eventually
from tests.streams import active_shards, merge_neighbours

RETRIEVALS = ("polling", "efo")


OPTIONS = {"parents_first": False, "audit_interval": 0.3, "cleanup_interval": 0.3}


@pytest.fixture
def release() -> Any:
    released = threading.Event()
    yield released
    released.set()


def lingering(journal: Journal, release: threading.Event) -> Callable[[], Journaling]:
    """Processors that stay with the record b"slow" until they are released."""

    def process(batch: Any, checkpointer: Any) -> None:
        if any(record.data == b"slow" for record in batch.records):
            assert release.wait(PATIENCE)
        checkpointer.checkpoint()

    return lambda: Journaling(journal, on_records=process)


def reshard(scene: Scene) -> str:
    """Two generations behind a slow record: a split, and a merge of its two; return the parent."""
    scene.put(b"slow")
    parent = scene.split()
    scene.put(b"child")
    merge_neighbours(scene.kinesis, scene.stream)
    scene.put(b"grandchild")
    return parent


@pytest.mark.parametrize("when", ["before the start", "while it runs"])
def test_children_begin_while_their_parent_is_read(
    scene: Scene, release: threading.Event, when: str
) -> None:
    options = dict(OPTIONS)
    if when == "before the start":
        parent = reshard(scene)
        options["audit_interval"] = 3600.0  # no audit is needed to find them
    worker = scene.start(processor=lingering(scene.journal, release), options=options)
    if when != "before the start":
        scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
        parent = reshard(scene)
    scene.journal.wait_for_data(b"child", b"grandchild")
    assert (parent, "shard_ended") not in scene.journal.calls()
    release.set()
    scene.journal.wait(lambda: (parent, "shard_ended") in scene.journal.calls())
    assert sorted(scene.journal.data()) == [b"child", b"grandchild", b"slow"]
    # Cleanup is as before: in the end, only the open shards have leases.
    open_shards = {shard["ShardId"] for shard in active_shards(scene.kinesis, scene.stream)}
    eventually(lambda: scene.owners().keys() == open_shards)
    assert worker.shutdown(PATIENCE)
