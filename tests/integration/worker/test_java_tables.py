"""Lease tables as dead Java KCLs left them are taken over, and remain what a Java KCL can read."""

from __future__ import annotations

import copy
import time
from datetime import timedelta
from typing import Any

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import UPPER, Scene, checkpoint
from tests.journal import PATIENCE, Journal
from tests.kcl import COORDINATION, KCL_2, KCL_3, create_table, java_refuses, put_rows, rows_of
from tests.streams import records_of

FIRST, SECOND, LEFT, RIGHT = (f"shardId-{n:012}" for n in range(4))
FOREIGN = {"team": {"S": "flights"}, "notes": {"L": [{"N": "1"}, {"NULL": True}]}}


def put_table(dynamodb: Any, name: str, rows: list[dict[str, Any]]) -> None:
    """The rows have the hash keys of their shards here: the recorded ones begin a key earlier."""
    create_table(dynamodb, name)
    keys = {str(UPPER - 2): str(UPPER - 1), str(UPPER - 1): str(UPPER)}
    here = {one: {"S": other} for one, other in keys.items()}
    rows = [
        {
            name: here.get(value["S"], value) if name.endswith("HashKey") else value
            for name, value in {**row, **FOREIGN}.items()
        }
        for row in rows
    ]
    put_rows(dynamodb, name, [*rows, *COORDINATION])


def check_table(dynamodb: Any, name: str) -> dict[str, dict[str, Any]]:
    """What holds whatever was done: Java can read it, and what is not ours is as it was."""
    rows = rows_of(dynamodb, name)
    for row in COORDINATION:
        assert rows.pop(row["leaseKey"]["S"]) == row
    for key, row in rows.items():
        assert java_refuses(row) == [], key
        assert {name: row.get(name) for name in FOREIGN} == FOREIGN, key
    return rows


def kcl_2_rows(scene: Scene) -> tuple[list[dict[str, Any]], str, str]:
    """KCL 2.x rows of a stream whose first shard was split: the second shard is in the middle of an
    aggregated record. Returns that record's sequence number too, and the next one's."""
    scene.put(b"done long ago")
    scene.split()
    (packed,) = aggregate([("k", None, b"%d" % n) for n in range(5)])
    middle = scene.put(packed.data, UPPER)
    following = scene.put(b"5", UPPER)
    scene.put(b"left")
    scene.put(b"right", UPPER // 2)
    parent, second, left = copy.deepcopy(KCL_2)
    second["checkpoint"] = {"S": middle}
    second["checkpointSubSequenceNumber"] = {"N": "2"}
    second["pendingCheckpoint"] = {"S": following}
    second["pendingCheckpointSubSequenceNumber"] = {"N": "0"}
    right = {**left, "leaseKey": {"S": RIGHT}, "leaseOwner": {"S": "worker-1"}}
    return [parent, second, left, right], middle, following


def test_a_table_of_a_kcl_2_is_taken_over(scene: Scene, dynamodb: Any) -> None:
    rows, middle, following = kcl_2_rows(scene)
    put_table(dynamodb, scene.stream, rows)
    before = rows_of(dynamodb, scene.stream)
    times: dict[str, float] = {}

    def note(shard: Any) -> None:
        times[shard.id] = time.monotonic()

    began = time.monotonic()
    worker = scene.start(on_records=checkpoint, on_initialize=note)
    scene.journal.wait_for_data(b"3", b"4", b"5", b"left", b"right")
    assert worker.shutdown(PATIENCE)

    shards = {what.id: what for _, call, what in scene.journal.entries if call == "initialize"}
    assert set(shards) == {SECOND, LEFT, RIGHT}, "the parent had ended: nobody is called for it"
    assert shards[SECOND].checkpoint == ExtendedSequenceNumber(middle, 2)
    pending = shards[SECOND].pending_checkpoint
    assert (pending.at, pending.state) == (ExtendedSequenceNumber(following), b"state\x00")
    assert shards[LEFT].pending_checkpoint is None
    assert scene.journal.data(SECOND) == [b"3", b"4", b"5"], "behind the sub-sequence number"
    assert (scene.journal.data(LEFT), scene.journal.data(RIGHT)) == ([b"left"], [b"right"])
    # Owners that may be alive are waited for; a lease that is nobody's is not.
    assert min(times[SECOND], times[RIGHT]) - began >= FAILOVER_TIME
    assert times[LEFT] <= min(times[SECOND], times[RIGHT])

    after = check_table(dynamodb, scene.stream)
    assert after[FIRST] == before[FIRST]
    second = after[SECOND]
    assert second["checkpoint"] == {"S": following}
    assert not [name for name in second if name.startswith("pending")]
    assert second["startingHashKey"] == before[SECOND]["startingHashKey"]
    assert int(second["leaseCounter"]["N"]) > int(before[SECOND]["leaseCounter"]["N"])
    assert after[LEFT]["parentShardId"] == before[LEFT]["parentShardId"]
    assert not any("leaseOwner" in row for key, row in after.items() if key != FIRST)


def test_a_table_of_a_kcl_3_is_taken_over(scene: Scene, dynamodb: Any) -> None:
    """The handoff that both dead workers had begun is over; an instant is the configuration's."""
    scene.put(b"before LATEST")
    scene.put(b"early", UPPER)
    (early,) = records_of(scene.kinesis, scene.stream, SECOND)
    scene.put(b"late", UPPER)
    put_table(dynamodb, scene.stream, KCL_3)
    moment = early["ApproximateArrivalTimestamp"] + timedelta(milliseconds=1)

    def run(into: Journal) -> Worker:
        return scene.start(initial_position=moment, on_records=checkpoint, journal=into)

    worker = run(scene.journal)
    scene.journal.wait_for_data(b"late")
    scene.journal.wait(lambda: (FIRST, "initialize") in scene.journal.calls())
    assert worker.shutdown(PATIENCE)
    assert scene.journal.data() == [b"late"]
    shards = {what.id: what for _, call, what in scene.journal.entries if call == "initialize"}
    assert shards[SECOND].pending_checkpoint.at == ExtendedSequenceNumber("49", 2)
    assert shards[SECOND].pending_checkpoint.state is None
    row = rows_of(dynamodb, scene.stream)[FIRST]
    assert row["checkpoint"] == {"S": "LATEST"}
    assert int(row["checkpointTimestamp"]["N"]) > moment.timestamp() * 1000 - 1
    assert "checkpointOwner" not in row
    assert row["entityType"] == {"S": "LEASE"}

    # LATEST is that moment from now on, and not that of whoever comes next.
    scene.put(b"while nobody read")
    again = Journal()
    worker = run(again)
    again.wait_for_data(b"while nobody read")
    for shard, hash_key in ((FIRST, 0), (SECOND, UPPER)):
        scene.put(shard.encode(), hash_key)
        again.wait_for_data(shard.encode())
    assert worker.shutdown(PATIENCE)
    assert again.data(FIRST) == [b"while nobody read", FIRST.encode()]
    assert again.data(SECOND) == [SECOND.encode()]
    after = check_table(dynamodb, scene.stream)
    assert "checkpointTimestamp" not in after[FIRST]
    assert not [name for name in after[SECOND] if name.startswith("pending")]


def test_an_instant_that_nobody_knows_is_read_from_the_start(scene: Scene, dynamodb: Any) -> None:
    """A Java KCL keeps it in its configuration only; ours says something else."""
    scene.put(b"early", UPPER)
    put_table(dynamodb, scene.stream, KCL_3)
    scene.start(initial_position="latest", on_records=checkpoint)
    scene.journal.wait_for_data(b"early")
    assert scene.journal.data(SECOND) == [b"early"]
