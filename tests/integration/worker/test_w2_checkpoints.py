"""W2: checkpoints inside of aggregated records, in two phases, and moved by the processor."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import CheckpointError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.checkpoint_rules import MAX_STATE_BYTES
from tests.integration.worker.scene import Scene, crash
from tests.journal import Journal
from tests.kcl import COORDINATION, create_table, put_rows

RETRIEVALS = ("polling", "efo")


def put_aggregate(scene: Scene, *datas: bytes) -> str:
    (packed,) = aggregate([("k", None, data) for data in datas])
    return scene.put(packed.data)


@pytest.mark.parametrize(
    "done", [0, 2, 4, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))]
)
def test_resuming_in_the_middle_of_an_aggregated_record(scene: Scene, done: int) -> None:
    """Checkpoint user record ``done`` of five, crash, resume: the next is the one after it."""
    scene.put(b"before")
    middle = put_aggregate(scene, b"0", b"1", b"2", b"3", b"4")
    scene.put(b"after")

    def checkpoint_in_the_middle(batch: Any, checkpointer: Any) -> None:
        for record in batch.records:
            if (record.sequence_number, record.sub_sequence_number) == (middle, done):
                checkpointer.checkpoint(record)

    first = scene.start(worker_id="same", on_records=checkpoint_in_the_middle)
    scene.journal.wait_for_data(b"before", b"0", b"4", b"after")
    crash(first)
    assert scene.row().checkpoint == ExtendedSequenceNumber(middle, done)

    resumed = Journal()
    scene.start(worker_id="same", journal=resumed)
    resumed.wait_for_data(b"after")
    assert resumed.data() == [b"%d" % n for n in range(done + 1, 5)] + [b"after"]


def test_what_was_prepared_is_found_by_whoever_comes_next(scene: Scene) -> None:
    sequence_number = scene.put(b"x")

    def prepare(batch: Any, checkpointer: Any) -> None:
        checkpointer.prepare(batch.records[0], state=b"half done")

    first = scene.start(worker_id="w", on_records=prepare)
    scene.journal.wait_for_data(b"x")
    crash(first)
    resumed = Journal()

    def commit(batch: Any, checkpointer: Any) -> None:
        prepared = checkpointer.prepare(batch.records[0], state=b"again")
        prepared.checkpoint()

    scene.start(worker_id="w", on_records=commit, journal=resumed)
    resumed.wait_for_data(b"x")
    pending = {
        shard.id: shard.pending_checkpoint
        for _, call, shard in resumed.entries
        if call == "initialize"
    }
    found = pending["shardId-000000000000"]
    assert found is not None
    assert (found.at.sequence_number, found.state) == (sequence_number, b"half done")
    row = scene.row()
    assert row.checkpoint.sequence_number == sequence_number
    assert row.pending is None


def prepare_and_crash(scene: Scene) -> None:
    """Prepares a checkpoint at user record 1 of an aggregate of three, and dies before the rest."""
    scene.put(b"before")
    middle = put_aggregate(scene, b"0", b"1", b"2")
    scene.put(b"after")

    def prepare(batch: Any, checkpointer: Any) -> None:
        for record in batch.records:
            if (record.sequence_number, record.sub_sequence_number) == (middle, 1):
                checkpointer.prepare(record, state=b"half done")

    first = scene.start(worker_id="w", on_records=prepare)
    scene.journal.wait_for_data(b"before", b"after")
    crash(first)


def test_a_pending_checkpoint_is_committed_at_once(scene: Scene) -> None:
    """Delivery begins behind it, inside of the aggregate."""
    prepare_and_crash(scene)
    resumed = Journal()

    def commit(shard: Any) -> None:
        if shard.pending_checkpoint is not None:
            assert shard.pending_checkpoint.state == b"half done"
            shard.commit_pending()

    scene.start(worker_id="w", on_initialize=commit, journal=resumed)
    resumed.wait_for_data(b"after")
    assert resumed.data() == [b"2", b"after"]
    row = scene.row()
    assert row.pending is None


@pytest.mark.parametrize("retrieval", ["polling"])  # fan-out may give all in one batch
def test_a_pending_checkpoint_is_committed_by_its_numbers_while_its_records_come_again(
    scene: Scene,
) -> None:
    """Of what was fetched, the rest up to it is not delivered any more."""
    prepare_and_crash(scene)
    resumed = Journal()
    pending: list[Any] = []

    def commit(batch: Any, checkpointer: Any) -> None:
        at = pending[0].pending_checkpoint.at
        if batch.records[0].data == b"before":
            checkpointer.checkpoint(at.sequence_number, at.sub_sequence_number)

    def remember(shard: Any) -> None:
        if shard.pending_checkpoint is not None:
            pending.append(shard)

    scene.start(
        {"max_records": 1},
        worker_id="w",
        on_records=commit,
        on_initialize=remember,
        journal=resumed,
    )
    resumed.wait_for_data(b"after")
    assert resumed.data() == [b"before", b"2", b"after"]


def test_a_pending_checkpoint_that_is_dropped_is_gone_and_its_records_come_again(
    scene: Scene,
) -> None:
    prepare_and_crash(scene)
    resumed = Journal()
    worker = scene.start(
        worker_id="w", on_initialize=lambda shard: shard.drop_pending(), journal=resumed
    )
    resumed.wait_for_data(b"before", b"after")
    crash(worker)
    assert resumed.data() == [b"before", b"0", b"1", b"2", b"after"]
    row = scene.row()
    assert row.pending is None
    assert row.checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")


def test_a_prepared_state_may_be_as_large_as_it_is_said(scene: Scene) -> None:
    """The row of a lease has room for it, whatever the server counts."""

    def prepare(batch: Any, checkpointer: Any) -> None:
        checkpointer.prepare(state=b"x" * MAX_STATE_BYTES)

    scene.put(b"x")
    scene.start(on_records=prepare)
    scene.journal.wait_for_data(b"x")
    row = scene.row()
    assert row.pending is not None
    assert row.pending.state == b"x" * MAX_STATE_BYTES


def test_a_processor_moves_its_own_shard(scene: Scene) -> None:
    scene.put(b"first")
    again: list[None] = []

    def once_more(batch: Any, checkpointer: Any) -> None:
        checkpointer.checkpoint()
        if b"second" in [record.data for record in batch.records] and not again:
            again.append(None)
            checkpointer.reset("TRIM_HORIZON")
            with pytest.raises(CheckpointError):
                checkpointer.checkpoint(batch.records[-1])

    scene.start(on_records=once_more)
    scene.journal.wait_for_data(b"first")
    scene.put(b"second")
    scene.journal.wait(lambda: scene.journal.data().count(b"second") == 2)
    assert scene.journal.data() == [b"first", b"second", b"first", b"second"]


def test_a_processor_skips_to_now_and_the_table_remembers_when(scene: Scene) -> None:
    def skip(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].data == b"old":
            checkpointer.reset("LATEST")

    scene.put(b"old")
    worker = scene.start(worker_id="w", on_records=skip)
    scene.journal.wait_for_data(b"old")
    crash(worker)
    scene.put(b"while nobody read")
    resumed = Journal()
    scene.start(worker_id="w", journal=resumed)
    resumed.wait_for_data(b"while nobody read")
    assert resumed.data() == [b"while nobody read"]


def test_beside_java_workers_a_moved_shard_is_checkpointed_at_a_record(scene: Scene) -> None:
    """A Java worker that takes the shard next does not know our instant."""
    dynamodb = scene.server.client("dynamodb")
    create_table(dynamodb, scene.stream)
    put_rows(dynamodb, scene.stream, COORDINATION)  # those of a KCL 3.5 that owns no lease
    numbers = [scene.put(b"first")]
    rows: list[Any] = []

    def go_back(batch: Any, checkpointer: Any) -> None:
        checkpointer.checkpoint()
        if len(rows) < 2 and batch.records[-1].data == b"second":
            to = "LATEST" if rows else batch.records[-1].approximate_arrival_timestamp
            checkpointer.reset(to)
            rows.append(scene.table.get("shardId-000000000000"))

    scene.start(on_records=go_back)
    scene.journal.wait_for_data(b"first")
    numbers.append(scene.put(b"second"))
    scene.journal.wait(lambda: scene.journal.data().count(b"second") == 2)
    scene.put(b"third")
    scene.journal.wait_for_data(b"third")
    assert [row.checkpoint.sequence_number for row in rows] == numbers
    assert [row.timestamp_ms for row in rows] == [None, None]
    assert scene.journal.data() == [b"first", b"second", b"second", b"third"]
