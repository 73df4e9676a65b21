"""W1: a shard's calls never overlap; a parent's end comes before any record of its children.

But with ``parents_first=False``: then children are read while their parents are.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparkinesis.lease.coordinator import LeaseCoordinator
from tests.integration.worker.scene import Scene
from tests.journal import PATIENCE, Journal, Journaling
from tests.pace import eventually
from tests.streams import active_shards, merge_neighbours, put

RETRIEVALS = ("polling", "efo")


def test_children_come_after_their_parents_and_keys_stay_in_order(scene: Scene) -> None:
    """Two workers, splits and merges while records are put; processors that dawdle."""

    def dawdle(batch: Any, checkpointer: Any) -> None:
        time.sleep(0.02)

    for name in ("a", "b"):
        scene.start({"max_records": 40}, worker_id=name, on_records=dawdle)
    keys = [f"key-{n}" for n in range(6)]
    for turn in range(60):
        for key in keys:
            put(scene.kinesis, scene.stream, [b"%03d" % turn], key=key)
        if turn in {10, 30}:
            scene.split()
        if turn in {20, 40}:
            merge_neighbours(scene.kinesis, scene.stream)
    scene.journal.wait(
        lambda: len({(r.partition_key, r.data) for r in scene.journal.records()}) == 60 * len(keys)
    )
    scene.journal.wait(lambda: len(scene.journal.calls("shard_ended")) >= 6)

    parents = parents_of(scene)
    assert len(parents) == 2 + 2 * 2 + 2 * 1
    by_key = in_order_of_first_sight(scene.journal, parents)
    assert by_key == {key: [b"%03d" % turn for turn in range(60)] for key in keys}


def parents_of(scene: Scene) -> dict[str, set[str]]:
    return {
        shard["ShardId"]: {
            shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in shard
        }
        for shard in scene.kinesis.list_shards(StreamName=scene.stream)["Shards"]
    }


def in_order_of_first_sight(
    journal: Journal, parents: dict[str, set[str]]
) -> dict[str, list[bytes]]:
    """The data of each key, replays left out; no shard before its parents have ended."""
    ended: set[str] = set()
    by_key: dict[str, list[bytes]] = defaultdict(list)
    for shard, call, what in journal.entries:
        if call == "shard_ended":
            ended.add(shard)
        if call == "process_records":
            assert parents[shard] <= ended, f"{shard} before its parents"
            for record in what.records:
                if record.data not in by_key[record.partition_key]:
                    by_key[record.partition_key].append(record.data)
    return by_key


def test_a_merged_shard_waits_for_the_slower_of_its_parents(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is there, and held, as soon as the first parent has ended."""
    first, second, child = (f"shardId-{n:012d}" for n in range(3))
    go_on = threading.Event()
    looks: list[tuple[str, ...]] = []
    look = LeaseCoordinator.are_finished

    def noted(self: LeaseCoordinator, parents: Sequence[str]) -> bool:
        looks.append(tuple(parents))
        return look(self, parents)

    monkeypatch.setattr(LeaseCoordinator, "are_finished", noted)

    def linger(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].data == b"slow":
            assert go_on.wait(PATIENCE)

    scene.put(b"slow", 2**127)
    scene.start({"parent_poll_interval": 0.05}, on_records=linger)
    scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    merge_neighbours(scene.kinesis, scene.stream)
    scene.put(b"merged")
    scene.journal.wait(lambda: (first, "shard_ended") in scene.journal.calls())
    eventually(lambda: looks.count((first, second)) > 20)
    assert (child, "initialize") not in scene.journal.calls()
    go_on.set()
    scene.journal.wait_for_data(b"slow", b"merged")
    calls = scene.journal.calls("shard_ended", "process_records")
    assert calls.index((second, "shard_ended")) < calls.index((child, "process_records"))


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
    options: dict[str, Any] = {
        "parents_first": False,
        "audit_interval": 0.3,
        "cleanup_interval": 0.3,
    }
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
