"""``hash_range_filter``: a worker drops the strangers inside of aggregates, and nothing else."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from sparkinesis.metrics.catalogue import RECORDS_FILTERED
from sparkinesis.stream.kpl.pack import aggregate
from tests.integration.worker.scene import Scene
from tests.streams import create_auto
from tests.tallies import Tallied, counted

RETRIEVALS = ("polling", "efo")
TOP = 2**128 - 1


def test_a_record_put_with_an_explicit_hash_key_is_delivered(
    scene: Scene, tallied: Tallied
) -> None:
    """Twenty keys of both shards' halves, all put into the second shard, and an aggregate."""
    plain = [b"%d" % n for n in range(20)]
    for n, data in enumerate(plain):
        scene.put(data, TOP, key=f"key-{n}")
    (blob,) = aggregate([("a", "0", b"stranger"), ("a", str(TOP), b"own"), ("a", "1", b"other")])
    scene.put(blob.data, TOP)
    worker = scene.start({"hash_range_filter": True, "metrics": (tallied,)})
    scene.journal.wait_for_data(*plain, b"own")
    assert scene.journal.data() == [*plain, b"own"]
    assert sum(shard.dropped for shard in worker.status()) == 2
    assert counted(tallied.tally, RECORDS_FILTERED) == {(scene.stream,): 2}


def test_the_filter_is_off_where_the_stream_distributes_records_itself(
    scene: Scene, caplog: Any
) -> None:
    """Each shard gets keys of all shards then: the filter would drop most of every aggregate."""
    name = f"auto-{uuid.uuid4().hex[:8]}"
    scene.kinesis.register_stream_consumer(
        StreamARN=create_auto(scene.kinesis, name), ConsumerName=name
    )
    datas = [b"%d" % n for n in range(40)]
    for first in range(0, 40, 5):
        (blob,) = aggregate([(data.decode(), None, data) for data in datas[first : first + 5]])
        scene.kinesis.put_record(StreamName=name, Data=blob.data, PartitionKey="a")
    with caplog.at_level(logging.WARNING, "sparkinesis"):
        scene.start({"hash_range_filter": True}, name=name, stream=name)
    scene.journal.wait_for_data(*datas)
    assert f"hash_range_filter is switched off for stream '{name}'" in caplog.text
