"""W1: a shard's calls never overlap; a parent's end comes before any record of its children."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from sparkinesis.application import Application
from sparkinesis.worker.lifecycle.worker import Worker
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import merge_neighbours, put, put_at, split

RETRIEVALS = ("polling", "efo")


def test_children_come_after_their_parents_and_keys_stay_in_order(
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    kinesis: Any,
    stream: str,
    journal: Journal,
) -> None:
    """Two workers, splits and merges while records are put; processors that dawdle."""

    def dawdle(batch: Any, checkpointer: Any) -> None:
        time.sleep(0.02)

    processor = lambda: Journaling(journal, on_records=dawdle)  # noqa: E731
    for name in ("a", "b"):
        start(application(worker_id=name, processor=processor, options={"max_records": 40}))
    keys = [f"key-{n}" for n in range(6)]
    for turn in range(60):
        for key in keys:
            put(kinesis, stream, [b"%03d" % turn], key=key)
        if turn in {10, 30}:
            split(kinesis, stream)
        if turn in {20, 40}:
            merge_neighbours(kinesis, stream)
    journal.wait(
        lambda: len({(r.partition_key, r.data) for r in journal.records()}) == 60 * len(keys)
    )
    journal.wait(lambda: len(journal.calls("shard_ended")) >= 6)

    parents = parents_of(kinesis, stream)
    assert len(parents) == 2 + 2 * 2 + 2 * 1
    by_key = in_order_of_first_sight(journal, parents)
    assert by_key == {key: [b"%03d" % turn for turn in range(60)] for key in keys}


def parents_of(kinesis: Any, stream: str) -> dict[str, set[str]]:
    return {
        shard["ShardId"]: {
            shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in shard
        }
        for shard in kinesis.list_shards(StreamName=stream)["Shards"]
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


def test_shards_run_concurrently(
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    kinesis: Any,
    stream: str,
    journal: Journal,
) -> None:
    both = threading.Barrier(2, timeout=30)

    def meet(batch: Any, checkpointer: Any) -> None:
        both.wait()

    put(kinesis, stream, [b"%d" % n for n in range(50)])
    start(application(processor=lambda: Journaling(journal, on_records=meet)))
    journal.wait(lambda: len(set(journal.calls("process_records"))) == 2)
    assert not journal.calls("failed")


def test_a_merged_shard_waits_for_the_slower_of_its_parents(
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    kinesis: Any,
    stream: str,
    journal: Journal,
) -> None:
    """Its lease is there, and held, as soon as the first parent has ended."""
    first, second, child = (f"shardId-{n:012d}" for n in range(3))
    go_on = threading.Event()

    def linger(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].data == b"slow":
            assert go_on.wait(PATIENCE)

    put_at(kinesis, stream, b"slow", 2**127)
    worker = start(
        application(
            processor=lambda: Journaling(journal, on_records=linger),
            options={"parent_poll_interval": 0.05},
        )
    )
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    kinesis.merge_shards(StreamName=stream, ShardToMerge=first, AdjacentShardToMerge=second)
    put_at(kinesis, stream, b"merged")
    journal.wait(lambda: (first, "shard_ended") in journal.calls())
    looks = [0]

    def has_looked_often() -> bool:
        states = {status.shard_id: status.state for status in worker.status()}
        looks[0] += child in states
        return looks[0] > 20

    deadline = time.monotonic() + PATIENCE
    while not has_looked_often():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (child, "initialize") not in journal.calls()
    go_on.set()
    journal.wait_for_data(b"slow", b"merged")
    calls = journal.calls("shard_ended", "process_records")
    assert calls.index((second, "shard_ended")) < calls.index((child, "process_records"))
