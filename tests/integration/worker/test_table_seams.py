"""A worker on a lease table that is not quite what it expects, or does not stay as it was."""

from __future__ import annotations

import threading
from typing import Any

from sparkinesis.lease.extended_sequence_number import (
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from tests.integration.worker.scene import FIRST, SECOND, Scene
from tests.journal import PATIENCE
from tests.kcl import put_lease, rows_of
from tests.streams import put

SHARDS = (FIRST, SECOND)
TRIM, END = ExtendedSequenceNumber(TRIM_HORIZON), ExtendedSequenceNumber(SHARD_END)


def test_leases_of_an_application_of_several_streams_are_left_alone(scene: Scene) -> None:
    """As the KCL: rows that were written in one mode mean nothing to the other.

    A table that has only such rows is refused: `test_s1_several_streams.py`.
    """
    dynamodb = scene.server.client("dynamodb")
    scene.start().shutdown(10)
    own = set(rows_of(dynamodb, scene.stream))
    assert own == set(SHARDS)
    for i, shard in enumerate(SHARDS):
        half, key = 2**127, f"123456789012:other:1700000000:{shard}"
        attributes = {
            "streamName": {"S": "123456789012:other:1700000000"},
            "shardId": {"S": shard},
            "startingHashKey": {"S": str(i * half)},
            "endingHashKey": {"S": str((i + 1) * half - 1)},
        }
        put_lease(dynamodb, scene.stream, key, "TRIM_HORIZON", attributes=attributes)
        dynamodb.update_item(
            TableName=scene.stream,
            Key={"leaseKey": {"S": key}},
            UpdateExpression="REMOVE leaseOwner",
        )
    before = {key: row for key, row in rows_of(dynamodb, scene.stream).items() if key not in own}
    datas = [b"a", b"b", b"c", b"d"]
    put(scene.kinesis, scene.stream, datas)
    scene.start()
    scene.journal.wait_for_data(*datas)
    after = rows_of(dynamodb, scene.stream)
    assert set(after) == {*before, *own}
    assert {key: after[key] for key in before} == before


def test_an_error_that_nobody_foresaw_does_not_end_the_care_for_leases(
    scene: Scene, dynamodb: Any
) -> None:
    worker = scene.application({"audit_interval": 0.2, "cleanup_interval": 0.2}).worker()
    step, failed = worker._streams.all()[0].syncer.step, threading.Event()

    def fails_once(*look: Any, leads: bool) -> float:
        if failed.is_set():
            return step(*look, leads=leads)
        failed.set()
        raise KeyError("something")

    worker._streams.all()[0].syncer.step = fails_once  # type: ignore[method-assign, assignment]
    worker.start()
    try:
        assert failed.wait(PATIENCE)
        scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == len(SHARDS))
        for key in rows_of(dynamodb, scene.stream):
            dynamodb.delete_item(TableName=scene.stream, Key={"leaseKey": {"S": key}})
        scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2 * len(SHARDS))
    finally:
        worker.shutdown(10)
