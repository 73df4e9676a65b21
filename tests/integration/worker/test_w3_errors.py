"""W3: a failing record processor loses no record in silence, and disturbs no other shard."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.message_types import AggregatedRecord
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.targets import (
    DeadLetterDirectory,
    DeadLetterStream,
    FailedRecords,
)
from sparkinesis.worker.on_error import DeadLetter, Retry, Skip, Stop
from tests import pace
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene, crash, wait_for_look
from tests.integration.worker.test_dead_letters_command import all_of
from tests.journal import PATIENCE, Journal, Journaling
from tests.unit.stream.kpl.aggregates import sealed

RETRIEVALS = ("polling", "efo")

OnRecords = Callable[[Any, Any], None]

SOON = Retry(base=0.01, cap=0.05)
AGES = Retry(base=1e7, cap=1e7)
"""Waits for weeks between two tries, as good as surely: waits are drawn from 0 on."""


class TroubleError(Exception):
    pass


def refuse(*bad: bytes) -> OnRecords:
    def process(batch: Any, checkpointer: Any) -> None:
        if found := [record.data for record in batch.records if record.data in bad]:
            raise TroubleError(f"cannot process {found}")

    return process


def put_all(scene: Scene, count: int) -> list[bytes]:
    """Records in the first shard; they fit into one page."""
    datas = [b"%03d" % n for n in range(count)]
    for data in datas:
        scene.put(data)
    return datas


def attempts(journal: Journal, shard: str = FIRST) -> list[list[bytes]]:
    """What each failed call was given."""
    return [
        [record.data for record in what[0].records]
        for where, call, what in list(journal.entries)
        if (where, call) == (shard, "failed")
    ]


# --- retry


@pytest.mark.parametrize("error", [TroubleError, SystemExit])
def test_a_retry_delivers_the_same_records_until_they_succeed(
    scene: Scene, error: type[BaseException]
) -> None:
    datas = put_all(scene, 5)

    def fail_thrice(batch: Any, checkpointer: Any) -> None:
        if len(attempts(scene.journal)) < 3:
            raise error("not yet")

    worker = scene.start(on_records=fail_thrice, on_error=SOON)
    scene.journal.wait_for_data(*datas)
    scene.put(b"next")
    scene.journal.wait_for_data(b"next")
    assert attempts(scene.journal) == [datas] * 3
    assert scene.journal.data(FIRST) == [*datas, b"next"]
    assert not worker.wait(0)
    assert scene.journal.calls("initialize").count((FIRST, "initialize")) == 1


def test_a_retry_sees_a_shutdown_at_once(scene: Scene) -> None:
    scene.put(b"x")
    worker = scene.start(on_records=refuse(b"x"), on_error=AGES)
    scene.journal.wait(lambda: bool(attempts(scene.journal)))
    asked = time.monotonic()
    assert worker.shutdown(PATIENCE)
    assert time.monotonic() - asked < pace.seconds(10)
    assert scene.calls_of() == ["initialize", "failed", "shutdown_requested", "lease_lost"]


# --- skip and dead letters


@pytest.mark.parametrize(
    ("bad", "first"), [({0, 3, 4, 11, 19}, None), ({0, 11}, 2), (set(range(20)), None)]
)
def test_only_the_bad_records_of_a_batch_are_given_up(
    scene: Scene, bad: set[int], first: int | None
) -> None:
    """At once, or after some tries; the others are delivered, in order, and exactly once."""
    datas = put_all(scene, 20)
    unwanted = [data for n, data in enumerate(datas) if n in bad]
    letters: list[FailedRecords] = []
    last_resort = DeadLetter(letters.append)
    policy = last_resort if first is None else Retry(first, 0.01, 0.01, then=last_resort)
    scene.start(on_records=refuse(*unwanted), on_error=policy)
    scene.journal.wait(lambda: len(scene.journal.calls("failed", "process_records")) > 1)
    scene.put(b"next")
    scene.journal.wait_for_data(b"next")
    assert scene.journal.data(FIRST) == [*(data for data in datas if data not in unwanted), b"next"]
    dead = [record for letter in letters for record in letter.batch.records]
    assert [record.data for record in dead] == unwanted
    assert {(letter.stream, letter.shard_id) for letter in letters} == {(scene.stream, FIRST)}
    assert all(isinstance(letter.error, TroubleError) for letter in letters)
    assert attempts(scene.journal).count(datas) == (first or 1), "as a whole, before it is cut"


# Pushed, an empty batch comes every five seconds only.
@pytest.mark.parametrize("retrieval", ["polling"])
def test_skipped_records_are_told_and_may_be_checkpointed(scene: Scene) -> None:
    """A skipped record at the batch's end does not come back after a restart."""
    scene.put(b"good")
    bad = scene.put(b"bad")
    worker = scene.start(
        {"call_even_for_empty_batches": True},
        on_records=refuse(b"bad"),
        on_shutdown=lambda c: c.checkpoint(),
        on_error=Skip(),
    )
    scene.journal.wait_for_data(b"good")

    def calls_of_first() -> list[str]:
        calls = scene.journal.calls("process_records", "failed")
        return [call for shard, call in calls if shard == FIRST]

    # Skipped once the next batch comes: a shutdown before that would leave it to another worker.
    scene.journal.wait(lambda: attempts(scene.journal)[-1:] == [[b"bad"]])
    scene.journal.wait(lambda: calls_of_first()[-2:] == ["process_records"] * 2)
    assert worker.shutdown(PATIENCE)
    assert f"Skipped record {bad}:0 of shard {FIRST}" in scene.caplog.text
    assert scene.row().checkpoint == ExtendedSequenceNumber(bad)


def test_dead_letters_to_a_stream_keep_their_keys_and_data(scene: Scene) -> None:
    dead = f"dead-{uuid.uuid4().hex[:8]}"
    scene.kinesis.create_stream(StreamName=dead, ShardCount=2)
    key_of_first = "k"
    (packed,) = aggregate([("agg", None, b"fine"), ("agg", str(UPPER), b"bad \x00 2")])
    scene.put(b"bad 1", key=key_of_first)
    scene.put(packed.data)
    target = DeadLetterStream(dead, "us-east-1", scene.server.endpoint_url)
    scene.start(on_records=refuse(b"bad 1", b"bad \x00 2"), on_error=DeadLetter(target))
    scene.journal.wait_for_data(b"fine")
    scene.put(b"next")
    scene.journal.wait_for_data(b"next")
    assert {(key, data) for _, key, data in all_of(scene.kinesis, dead)} == {
        (key_of_first, b"bad 1"),
        ("agg", b"bad \x00 2"),
    }
    # The explicit hash key is what puts it into the second shard.
    assert (SECOND, "agg", b"bad \x00 2") in all_of(scene.kinesis, dead)
    assert scene.journal.data(FIRST) == [b"fine", b"next"]


def test_keys_that_no_producer_of_kinesis_makes_do_not_stop_dead_letters_to_a_stream(
    scene: Scene,
) -> None:
    """Whoever packs an aggregate may write any keys into it; PutRecords refuses some."""
    dead = f"dead-{uuid.uuid4().hex[:8]}"
    scene.kinesis.create_stream(StreamName=dead, ShardCount=2)
    packed = AggregatedRecord(
        partition_key_table=["", "x" * 300, "k"],
        explicit_hash_key_table=["abc"],
        records=[
            {"partition_key_index": 0, "data": b"bad 1"},
            {"partition_key_index": 1, "data": b"bad 2"},
            {"partition_key_index": 2, "explicit_hash_key_index": 0, "data": b"bad 3"},
        ],
    ).SerializeToString()
    scene.put(sealed(packed).data)
    target = DeadLetterStream(dead, "us-east-1", scene.server.endpoint_url)
    scene.start(on_records=refuse(b"bad 1", b"bad 2", b"bad 3"), on_error=DeadLetter(target))
    scene.put(b"next")
    scene.journal.wait_for_data(b"next")
    keys = {data: key for _, key, data in all_of(scene.kinesis, dead)}
    assert 1 <= len(keys.pop(b"bad 1")) <= 256, "a random one"
    assert keys == {b"bad 2": "x" * 256, b"bad 3": "k"}


def test_dead_letters_to_a_directory_are_whole_and_there_once(scene: Scene, tmp_path: Path) -> None:
    """The worker dies without a checkpoint, and the next one gives up the same records again."""
    folder = tmp_path / "new" / "dead"
    datas = put_all(scene, 8)
    bad = [datas[2], datas[5]]
    for _ in range(2):
        journal = Journal()
        worker = scene.start(
            worker_id="same",
            on_records=refuse(*bad),
            journal=journal,
            on_error=DeadLetter(DeadLetterDirectory(folder)),
        )
        journal.wait_for_data(*(data for data in datas if data not in bad))
        crash(worker)
    tables = [pq.read_table(path) for path in sorted(folder.iterdir())]
    assert [row["data"] for table in tables for row in table.to_pylist()] == bad
    (one,) = {row["shardId"] for table in tables for row in table.to_pylist()}
    assert one == FIRST
    metadata = tables[0].schema.metadata
    assert b"TroubleError" in metadata[b"error"]
    assert metadata[b"application"] == scene.stream.encode()


def test_a_shard_does_not_go_on_without_its_dead_letter_target(scene: Scene) -> None:
    scene.put(b"bad")
    scene.put(b"after")

    def target(failed: FailedRecords) -> None:
        scene.journal.write(FIRST, "target", [record.data for record in failed.batch.records])
        if len(scene.journal.calls("target")) < 4:
            raise OSError("the disk is full")

    scene.start({"task_backoff": 0.01}, on_records=refuse(b"bad"), on_error=DeadLetter(target))
    scene.journal.wait_for_data(b"after")
    # Both records failed, then the bad one alone, which is not delivered again after this.
    calls = ["initialize", *["failed"] * 2, *["target"] * 4, "process_records"]
    assert scene.calls_of() == calls
    assert scene.journal.data() == [b"after"]


# --- stop


def test_stop_leaves_the_shard_to_other_workers(scene: Scene) -> None:
    scene.put(b"bad")
    a = scene.start(
        worker_id="a", on_records=refuse(b"bad"), on_error=Retry(2, 0.01, 0.01, then=Stop())
    )
    scene.journal.wait(lambda: (FIRST, "lease_lost") in scene.journal.calls())
    assert attempts(scene.journal) == [[b"bad"], [b"bad"]]
    assert (FIRST, "shutdown_requested") not in scene.journal.calls()

    other = Journal()
    b = scene.start(worker_id="b", journal=other)
    other.wait_for_data(b"bad")
    # With b gone there is nobody else to take it, and a still does not.
    assert b.shutdown(PATIENCE)
    looks: set[float | None] = set()

    def has_looked_often() -> bool:
        snapshot = a._coordinator.snapshot
        if {row.shard_id: row.owner for row in snapshot.leases} == {FIRST: None, SECOND: "a"}:
            looks.add(snapshot.at)
        return len(looks) > 4

    wait_for_look(a, has_looked_often)
    assert scene.row().owner is None
    assert scene.journal.calls("initialize").count((FIRST, "initialize")) == 1
    scene.put(b"elsewhere", UPPER)
    scene.journal.wait_for_data(b"elsewhere")
    # Worker a, started again, may try anew.
    third = Journal()
    scene.start(worker_id="c", journal=third)
    third.wait_for_data(b"bad")


@pytest.mark.parametrize("resort", ["stop", "dead letter"])
def test_a_lost_lease_is_no_fault_of_the_records(scene: Scene, resort: str) -> None:
    """Its checkpoint is refused: nothing is given up for that, and the shard may come back."""
    letters: list[FailedRecords] = []
    is_started = threading.Event()

    def lose(batch: Any, checkpointer: Any) -> None:
        assert is_started.wait(PATIENCE)
        if not attempts(scene.journal):
            worker._coordinator.held()[FIRST].lose("the test says so")
        checkpointer.checkpoint()

    scene.put(b"x")
    worker = scene.start(
        on_records=lose, on_error=Stop() if resort == "stop" else DeadLetter(letters.append)
    )
    is_started.set()
    scene.journal.wait_for_data(b"x")
    assert scene.calls_of()[:3] == ["initialize", "failed", "lease_lost"]
    assert attempts(scene.journal) == [[b"x"]]
    assert not letters
    assert scene.journal.data() == [b"x"]


# --- the other calls


def test_a_missing_checkpoint_at_a_shards_end_is_told_and_asked_for_again(scene: Scene) -> None:
    class Forgetful(Journaling):
        def shard_ended(self, checkpointer: Checkpointer) -> None:
            self.journal.write(self.shard.id, "forgotten")
            if len(self.journal.calls("forgotten")) == 3:
                super().shard_ended(checkpointer)

    scene.start(
        {"task_backoff": 0.01, "parent_poll_interval": 0.1},
        processor=lambda: Forgetful(scene.journal),
    )
    scene.split()
    scene.put(b"child")
    scene.journal.wait_for_data(b"child")
    calls = scene.calls_of()
    assert calls == ["initialize", "forgotten", "forgotten", "forgotten", "shard_ended"]
    assert f"shard_ended returned without a checkpoint on shard {FIRST}" in scene.caplog.text
    assert "Call checkpointer.checkpoint()" in scene.caplog.text


def clumsy(journal: Journal, where: str, error: type[BaseException]) -> Journaling:
    """A processor that raises in one call, twice in all."""

    def stumble(self: Journaling, *given: Any) -> None:
        if len(journal.calls("raised")) < 2:
            journal.write("", "raised")
            raise error(f"trouble in {where}")
        getattr(Journaling, where)(self, *given)

    return cast(Journaling, type("Clumsy", (Journaling,), {where: stumble})(journal))


@pytest.mark.parametrize("error", [TroubleError, SystemExit])
@pytest.mark.parametrize("where", ["initialize", "shard_ended"])
def test_an_exception_at_the_beginning_or_at_the_shards_end_is_tried_again(
    scene: Scene, where: str, error: type[BaseException]
) -> None:
    scene.put(b"parent")
    scene.split()
    scene.put(b"child")
    worker = scene.start(
        {"task_backoff": 0.01, "parent_poll_interval": 0.1},
        processor=lambda: clumsy(scene.journal, where, error),
    )
    scene.journal.wait_for_data(b"parent", b"child")
    assert not worker.wait(0)
    assert scene.calls_of() == ["initialize", "process_records", "shard_ended"]
    assert len(scene.journal.calls("raised")) == 2


@pytest.mark.parametrize("error", [TroubleError, SystemExit])
@pytest.mark.parametrize("where", ["shutdown_requested", "lease_lost"])
def test_an_exception_at_the_end_is_logged_and_holds_up_nothing(
    scene: Scene, caplog: pytest.LogCaptureFixture, where: str, error: type[BaseException]
) -> None:
    for hash_key in (0, UPPER):
        scene.put(b"%d" % hash_key, hash_key)
    worker = scene.start(processor=lambda: clumsy(scene.journal, where, error))
    scene.journal.wait_for_data(b"0", b"%d" % UPPER)
    assert worker.shutdown(PATIENCE)
    for shard in (FIRST, SECOND):
        assert f"{where} raised on shard {shard}" in caplog.text
    assert f"trouble in {where}" in caplog.text
    assert [row.owner for row in scene.table.leases()] == [None, None]
    other = "lease_lost" if where == "shutdown_requested" else "shutdown_requested"
    assert len(scene.journal.calls(other)) == 2
