"""W5: an application is moved while its workers run; nothing is restarted."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableNotFoundError,
    OptionError,
    SparkinesisError,
    StreamNotFoundError,
    UnfinishedResetError,
)
from sparkinesis.lease.extended_sequence_number import (
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from sparkinesis.lease.moving.application_reset import (
    StreamToReset,
    apply_resets,
    plan_resets,
)
from sparkinesis.lease.rules.reset import LeaseReset
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.monitor.target import parse_target
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.scene import FIRST, ONCE, SECOND, Scene, checkpoint
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put, shard_ids

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


def test_to_trim_horizon_everything_again_parents_before_children(scene: Scene) -> None:
    processor = lambda: Journaling(scene.journal, on_records=checkpoint)  # noqa: E731
    two_workers(scene, processor=processor)
    early = [b"early %d" % n for n in range(20)]
    put(scene.kinesis, scene.stream, early)
    scene.journal.wait_for_data(*early)
    parent = scene.split()
    late = [b"late %d" % n for n in range(20)]
    put(scene.kinesis, scene.stream, late)
    scene.journal.wait_for_data(*late)
    children = sorted(set(shard_ids(scene.kinesis, scene.stream)) - {FIRST, SECOND})
    scene.journal.wait(lambda: {s for s, _ in scene.journal.calls("initialize")} >= set(children))
    before = len(scene.journal.entries)

    move(scene.application(), "trim_horizon")

    def again() -> list[tuple[str, str, Any]]:
        return scene.journal.entries[before:]

    def data_again() -> list[bytes]:
        return [
            record.data
            for _, call, batch in again()
            if call == "process_records"
            for record in batch.records
        ]

    scene.journal.wait(lambda: set(data_again()) == {*early, *late})
    calls = [(shard, call) for shard, call, _ in again()]
    ended = calls.index((parent, "shard_ended"))
    for child in children:
        # What a processor of before says after the move is no more than that its lease is lost.
        assert calls.index((child, "initialize")) > ended
        assert calls.index((child, "process_records")) > ended


def test_to_an_instant(scene: Scene) -> None:
    scene.start(worker_id="a")
    put_in(scene, FIRST, b"early 1")
    put_in(scene, SECOND, b"early 2")
    scene.journal.wait_for_data(b"early 1", b"early 2")
    put_in(scene, FIRST, b"late 1")
    put_in(scene, SECOND, b"late 2")
    scene.journal.wait_for_data(b"late 1", b"late 2")
    before = Counter(scene.journal.data())
    arrivals = {
        record.data: record.approximate_arrival_timestamp for record in scene.journal.records()
    }
    at = arrivals[b"late 1"]
    assert at is not None
    assert at > (arrivals[b"early 2"] or at)

    move(scene.application(), at.isoformat())
    scene.journal.wait(
        lambda: Counter(scene.journal.data()) - before == Counter([b"late 1", b"late 2"])
    )
    put_in(scene, FIRST, b"new")
    scene.journal.wait_for_data(b"new")
    assert Counter(scene.journal.data()) - before == Counter([b"late 1", b"late 2", b"new"])


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
def test_rows_that_change_between_the_plan_and_the_writes(scene: Scene) -> None:
    """One is renewed, one read to its end, one deleted, and one made by somebody else."""
    scene.kinesis.update_shard_count(
        StreamName=scene.stream, TargetShardCount=4, ScalingType="UNIFORM_SCALING"
    )
    scene.application(initial_position="latest").worker()._streams.all()[
        0
    ].syncer.sync()  # takes no lease
    table = scene.table
    renewed, ended, deleted, made = (row.key for row in table.leases())
    rows = {row.key: row for row in table.leases()}
    for key in (made, ended):
        assert table.delete(rows[key])
    assert table.create(replace(rows[ended], owner="w"))
    moves = plan(scene.application(), "latest")
    assert [move.create is not None for move in moves] == [False, False, False, True]
    owned = table.write(requests.renew(table.write(requests.take(rows[renewed], "w"))))
    table.write(
        requests.checkpoint(replace(rows[ended], owner="w"), ExtendedSequenceNumber(SHARD_END))
    )
    assert table.delete(rows[deleted])
    assert table.create(replace(rows[made], owner="w", counter=7))

    apply_resets(table, moves)
    after = {row.key: row for row in table.leases()}
    assert after[ended].is_finished, "what arrives from now on is in its children"
    for key, counter in ((renewed, owned.counter + 2), (deleted, 0), (made, 9)):
        row = after[key]
        assert row.checkpoint == ExtendedSequenceNumber(TRIM_HORIZON), "nothing is older"
        assert row.timestamp_ms is None
        assert row.hash_range == rows[key].hash_range
        assert row.parent_ids == rows[key].parent_ids
        assert (row.owner, row.counter) == (None, counter)
    with pytest.raises(LeaseChangedError):
        table.write(requests.renew(owned))


@ONCE
def test_what_could_not_be_moved_is_told(scene: Scene) -> None:
    scene.application().worker()._streams.all()[0].syncer.sync()
    table = scene.table
    moves = plan(scene.application(), "latest")
    known = moves[1].lease
    assert known is not None
    # DynamoDB takes no empty key.
    refused = replace(moves[1], key="", lease=None, create=replace(known, key=""))
    with pytest.raises(UnfinishedResetError, match="1 of 2 leases of the lease table") as error:
        apply_resets(table, [moves[0], refused])
    assert error.value.written == (moves[0],)
    assert error.value.left == (refused,)


@ONCE
@pytest.mark.parametrize(
    ("to", "given", "kind", "text"),
    [
        ("yesterday", {}, OptionError, "The position is 'yesterday', which is not a position"),
        ("2026-11-21T08:30:00", {}, OptionError, "an instant without a time zone"),
        ("2999-01-01T00:00:00Z", {}, OptionError, "is in the future"),
        ("shardId-9=1", {}, OptionError, "shardId-9 is not a shard of the stream"),
        (f"{FIRST}=LATEST", {}, OptionError, "is not a position in a shard"),
        (f"{FIRST}=12", {}, OptionError, f"12 is not a sequence number of {FIRST}"),
        (f"{FIRST}={{of the other}}", {}, OptionError, "is not a sequence number of"),
        ("latest", {"stream": "nope"}, StreamNotFoundError, "There is no stream 'nope'"),
        ("latest", {"name": "nope"}, LeaseTableNotFoundError, "There is no lease table 'nope'"),
        ("latest", {"stream": "{wider}"}, OptionError, "is not of this stream"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(
    scene: Scene, to: str, given: dict[str, str], kind: type[SparkinesisError], text: str
) -> None:
    scene.application().worker()._streams.all()[0].syncer.sync()
    before = scene.table.leases()
    assert len(before) == 2
    if "{wider}" in given.values():
        wider = f"{scene.stream}-wider"
        scene.kinesis.create_stream(StreamName=wider, ShardCount=3)
        given = {"stream": wider}
    (number,) = put_in(scene, SECOND, b"x")
    with pytest.raises(kind) as error:
        move(scene.application(**given), to.replace("{of the other}", number))
    assert type(error.value) is kind
    assert text in str(error.value)
    assert scene.table.leases() == before
    assert before[0].checkpoint.sequence_number == TRIM_HORIZON
