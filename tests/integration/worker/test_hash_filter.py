"""``hash_range_filter``: a worker drops what a KPL puts again after a reshard, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from sparkinesis.metrics.catalogue import RECORDS_FILTERED
from sparkinesis.stream.kpl.pack import aggregate
from tests.integration.worker.scene import UPPER, Scene
from tests.streams import active_shards, arn_of, create_auto, put_at, split
from tests.tallies import Tallied, counted

RETRIEVALS = ("polling", "efo")
KPL = "a"
"""The partition key that a KPL gives each aggregate."""


def packed(users: Sequence[tuple[str, str | None, bytes]]) -> bytes:
    (blob,) = aggregate(users)
    return blob.data


def test_what_a_kpl_puts_again_after_a_reshard_is_dropped(scene: Scene, tallied: Tallied) -> None:
    """The first of two shards is split: its second child gets an aggregate of both children."""
    scene.split()
    middle = UPPER // 2
    put_here = [
        *(("plain", f"x{n}", [("k", "0", b"plain %d" % n)]) for n in range(3)),
        ("a library's", "k", [("k", str(middle), b"lib 0"), ("k", "0", b"lib 1")]),
        ("put elsewhere by key", KPL, [("k", "0", b"auto 0"), ("k", str(middle), b"auto 1")]),
    ]
    kept = [data for _, _, users in put_here for _, _, data in users]
    for kind, key, users in put_here:
        data = users[0][2] if kind == "plain" else packed(users)
        scene.put(data, middle, key)
    stale = [("k", str(middle), b"own"), ("k", "0", b"left"), ("k", str(UPPER - 1), b"own too")]
    scene.put(packed(stale), middle, KPL)
    never_split = [("k", str(UPPER), b"upper"), ("k", "0", b"of no reshard")]
    scene.put(packed(never_split), UPPER, KPL)
    expected = sorted([*kept, b"own", b"own too", b"upper", b"of no reshard"])
    worker = scene.start({"hash_range_filter": True, "metrics": (tallied,)})
    scene.journal.wait_for_data(*expected)
    assert sorted(scene.journal.data()) == expected
    assert sum(shard.dropped for shard in worker.status()) == 1
    assert counted(tallied.tally, RECORDS_FILTERED) == {(scene.stream,): 1}


@pytest.mark.parametrize("first", ["AUTO", "USER_PARTITION_KEY"])
def test_nothing_is_lost_if_the_strategy_changes_while_a_worker_runs(
    scene: Scene, first: str
) -> None:
    """Records of either strategy, read under the same and under the other one."""
    name = f"switched-{uuid.uuid4().hex[:8]}"
    arn = create_auto(scene.kinesis, name)
    scene.kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=name)
    expected: list[bytes] = []

    def put(strategy: str) -> None:
        _switch(scene.kinesis, arn, strategy)
        datas = [b"%s %d" % (strategy.encode(), len(expected) + n) for n in range(60)]
        for at in range(0, 60, 5):
            users = [(data.decode(), None, data) for data in datas[at : at + 5]]
            scene.kinesis.put_record(StreamName=name, Data=packed(users), PartitionKey=KPL)
        expected.extend(datas)

    put(first)
    scene.start({"hash_range_filter": True}, name=name, stream=name)
    scene.journal.wait_for_data(*expected)
    other = "USER_PARTITION_KEY" if first == "AUTO" else "AUTO"
    put(other)
    _switch(scene.kinesis, arn, first)
    scene.journal.wait_for_data(*expected)
    assert sorted(scene.journal.data()) == sorted(expected)


def test_after_a_reshard_nothing_is_dropped_while_the_stream_distributes_records(
    scene: Scene,
) -> None:
    """Aggregates like a KPL's, whose first record lies in the child that they come to by chance."""
    name = f"auto-{uuid.uuid4().hex[:8]}"
    scene.kinesis.create_stream(StreamName=name, ShardCount=1)
    split(scene.kinesis, name)
    low, high = (
        int(s["HashKeyRange"]["StartingHashKey"]) for s in active_shards(scene.kinesis, name)
    )
    arn = arn_of(scene.kinesis, name)
    scene.kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=name)
    users = [("k", str(high), b"own"), ("k", str(low), b"stranger")]
    worker = scene.start({"hash_range_filter": True}, name=name, stream=name)
    put_at(scene.kinesis, name, packed(users), high, KPL)
    scene.journal.wait_for_data(b"own")
    assert sum(shard.dropped for shard in worker.status()) == 1
    scene.kinesis.update_stream_mode(StreamARN=arn, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    _switch(scene.kinesis, arn, "AUTO")
    for _ in range(8):
        put_at(scene.kinesis, name, packed(users), high, KPL)
    scene.journal.wait(lambda: len(scene.journal.data()) == 17)
    assert sum(shard.dropped for shard in worker.status()) == 1


def _switch(kinesis: Any, arn: str, strategy: str) -> None:
    kinesis.update_stream_record_distribution_strategy(
        StreamARN=arn, RecordDistributionStrategy=strategy
    )
