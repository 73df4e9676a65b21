"""W5: an application is moved while its workers run; nothing is restarted."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import LeaseLostError, OptionError, UnfinishedResetError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.moving.application_reset import StreamToReset, apply_resets, plan_resets
from sparkinesis.lease.rules.reset_plan import LeaseReset
from sparkinesis.local import Fault
from sparkinesis.monitor.reset_arguments import parse_target
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.worker.lifecycle.worker import Worker
from tests.failing import Failing
from tests.integration.worker.scene import FIRST, ONCE, SECOND, Scene
from tests.journal import PATIENCE, Journal
from tests.streams import put

RETRIEVALS = ("polling", "efo")


HASH_KEYS = {FIRST: "0", SECOND: str(2**128 - 1)}


def plan(application: Application, to: str) -> list[LeaseReset]:
    only = StreamToReset(StreamClient(application.address()))
    return plan_resets([only], application.table(), parse_target(to))


def move(application: Application, to: str) -> list[LeaseReset]:
    moves = plan(application, to)
    apply_resets(application.table(), moves)
    return moves


def put_in(scene: Scene, shard: str, *datas: bytes) -> list[str]:
    return [
        scene.kinesis.put_record(
            StreamName=scene.stream, Data=data, PartitionKey="k", ExplicitHashKey=HASH_KEYS[shard]
        )["SequenceNumber"]
        for data in datas
    ]


def two_workers(scene: Scene, **given: Any) -> list[Worker]:
    """Two workers that have one of the two shards each."""
    workers = [scene.start(worker_id=name, **given) for name in ("a", "b")]

    def readers() -> set[str]:
        shards = [what for _, call, what in scene.journal.entries if call == "initialize"]
        return set({shard.id: shard.worker_id for shard in shards}.values())

    scene.journal.wait(lambda: readers() == {"a", "b"})
    return workers


def wait_until_taken_up(journal: Journal, *shards: str, times: int = 2) -> None:
    """Until each shard has been lost by one processor, and initialized by the next."""
    for call, count in (("lease_lost", times - 1), ("initialize", times)):
        journal.wait(
            lambda: all(journal.calls(call).count((shard, call)) >= count for shard in shards)  # noqa: B023
        )


def test_to_latest_old_records_do_not_come_again_and_new_ones_do(scene: Scene) -> None:
    """Nothing was checkpointed: a shard that is merely lost would begin at its oldest record."""
    workers = two_workers(scene)
    old = [b"old %d" % n for n in range(20)]
    put(scene.kinesis, scene.stream, old)
    scene.journal.wait_for_data(*old)
    before, entries = Counter(scene.journal.data()), len(scene.journal.entries)

    moves = move(scene.application(), "latest")
    last = [(shard, scene.journal.records(shard)[-1].sequence_number) for shard in (FIRST, SECOND)]
    assert [(m.key, m.at.sequence_number) for m in moves] == last, "which Java understands, too"
    scene.journal.wait(
        lambda: (
            {s for s, call, _ in scene.journal.entries[entries:] if call == "initialize"}
            == {FIRST, SECOND}
        )
    )
    new = [b"new %d" % n for n in range(20)]
    put(scene.kinesis, scene.stream, new)
    scene.journal.wait_for_data(*new)
    after = Counter(scene.journal.data())
    assert {data: after[data] for data in old} == before
    assert not any(worker.wait(0) for worker in workers)


def test_to_a_place_in_one_shard_others_stay(scene: Scene) -> None:
    scene.start(worker_id="a")
    datas = [b"%d" % n for n in range(5)]
    numbers = put_in(scene, FIRST, *datas)
    put_in(scene, SECOND, b"other")
    scene.journal.wait_for_data(*datas, b"other")

    (made,) = move(scene.application(), f"{FIRST}={numbers[2]}")
    assert (made.key, made.at.sequence_number) == (FIRST, numbers[2])
    scene.journal.wait(lambda: scene.journal.data(FIRST).count(b"4") == 2)
    assert scene.journal.data(FIRST) == [*datas, b"3", b"4"]
    assert scene.journal.data(SECOND) == [b"other"]
    assert scene.journal.calls("lease_lost") == [(FIRST, "lease_lost")]


def test_a_checkpoint_of_before_is_refused_and_overwrites_nothing(scene: Scene) -> None:
    """The owner is in process_records when it is moved, and checkpoints right afterwards."""
    inside, moved = threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def checkpoint_late(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].data == b"old":
            inside.set()
            assert moved.wait(PATIENCE)
            try:
                checkpointer.checkpoint()
            except LeaseLostError as error:
                refused.append(error)
                raise

    (old,) = put_in(scene, FIRST, b"old")
    scene.start(worker_id="a", on_records=checkpoint_late)
    assert inside.wait(PATIENCE)
    move(scene.application(), "latest")
    moved.set()
    wait_until_taken_up(scene.journal, FIRST)
    row = scene.row()
    assert (row.checkpoint, row.timestamp_ms) == (ExtendedSequenceNumber(old), None)
    (error,) = refused
    assert "was released or reset by somebody else" in str(error)
    put_in(scene, FIRST, b"new")
    scene.journal.wait_for_data(b"new")
    assert scene.journal.data() == [b"new"], "the old one failed, and does not come again"


@ONCE
def test_what_could_not_be_moved_is_told(scene: Scene) -> None:
    scene.application().worker()._streams.all()[0].syncer.sync()
    table = scene.table
    moves = plan(scene.application(), "latest")
    scene.faults(Failing("UpdateItem", None, then=Fault.error("ValidationException")))
    with pytest.raises(UnfinishedResetError, match="1 of 2 leases of the lease table") as error:
        apply_resets(table, moves)
    assert error.value.written == (moves[0],)
    assert error.value.left == (moves[1],)


@ONCE
def test_a_place_that_is_none_in_the_shard_is_told_and_nothing_is_written(scene: Scene) -> None:
    scene.application().worker()._streams.all()[0].syncer.sync()
    before = scene.table.leases()
    (of_the_other,) = put_in(scene, SECOND, b"x")
    for number in ("12", of_the_other):
        with pytest.raises(OptionError, match=f"{number} is not a sequence number of {FIRST}"):
            move(scene.application(), f"{FIRST}={number}")
    assert scene.table.leases() == before
