"""What goes wrong in between: no shard hangs, and no record is lost, without a word."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.lease.extended_sequence_number import LATEST, ExtendedSequenceNumber
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.local.faults import Call
from sparkinesis.stream.calls.answers.decoding import decode_page
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import DeadLetter
from tests.integration.worker.scene import Scene
from tests.journal import PATIENCE, Journal
from tests.kcl import put_lease, rows_of
from tests.streams import create_anew, identifier, put

SHARD = "shardId-000000000000"


@pytest.fixture
def stream(kinesis: Any) -> str:
    """A stream of one shard."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    kinesis.create_stream(StreamName=name, ShardCount=1)
    return name


def first_times(times: int, error: BaseException, then: Callable[..., Any]) -> Callable[..., Any]:
    left = [error] * times

    def call(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop()
        return then(*args, **kwargs)

    return call


def test_an_answer_that_is_no_page_does_not_end_the_fetching(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a proxy that answers with a page of its own, and status 200."""
    broken = first_times(2, ValueError("JSON is malformed"), decode_page)
    monkeypatch.setattr("sparkinesis.stream.calls.operations.decode_page", broken)
    scene.put(b"1")
    scene.put(b"2")
    scene.start()
    scene.journal.wait_for_data(b"1", b"2")
    assert scene.journal.data() == [b"1", b"2"]


def test_a_page_that_could_not_be_unpacked_is_fetched_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_memory = first_times(2, MemoryError(), make_batch)
    monkeypatch.setattr("sparkinesis.worker.lifecycle.shard.batcher.make_batch", no_memory)
    scene.put(b"1")
    scene.start()
    scene.journal.wait(lambda: bool(scene.journal.calls("initialize")))
    scene.put(b"2")
    scene.put(b"3")
    scene.journal.wait_for_data(b"3")
    assert scene.journal.data() == [b"1", b"2", b"3"]


def test_what_ends_a_thread_does_not_end_the_consumer(scene: Scene) -> None:
    """sys.exit() in a user's function is as any other error; no fetching is left behind."""
    refuse = first_times(2, SystemExit(1), lambda _: scene.journal.write(SHARD, "dead letter"))

    def fail(batch: Any, _: Any) -> None:
        if batch.records[0].data == b"bad":
            raise ValueError("bad")

    def exit_once(_: Any) -> None:
        if len(scene.journal.calls("initialize")) == 1:
            raise SystemExit(1)

    scene.put(b"bad")
    scene.put(b"good")
    worker = scene.start(on_records=fail, on_initialize=exit_once, on_error=DeadLetter(refuse))
    scene.journal.wait_for_data(b"good")
    assert [c for _, c in scene.journal.calls("initialize", "lease_lost")] == ["initialize"] * 2
    assert len(scene.journal.calls("dead letter")) == 1
    assert worker._settings.fetchers.unfinished == 1


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_a_stream_that_was_deleted_and_made_anew_is_read(scene: Scene) -> None:
    """Its shards have the ids of before: a lease that has ended would never be read again.

    A consumer that was registered is gone, too.
    """

    def watch(call: Call) -> None:
        asked = {"DescribeStreamSummary", "ListShards", "SubscribeToShard"}
        if call.operation in asked and call.stream == scene.stream:
            scene.journal.write(SHARD, "looked for")

    scene.put(b"old")
    scene.start()
    scene.journal.wait_for_data(b"old")
    before = identifier(scene.kinesis, scene.stream)
    scene.kinesis.delete_stream(StreamName=scene.stream, EnforceConsumerDeletion=True)
    scene.faults(watch)
    scene.journal.wait(lambda: bool(scene.journal.calls("looked for", "shard_ended")))
    scene.kinesis.get_waiter("stream_not_exists").wait(
        StreamName=scene.stream, WaiterConfig={"Delay": 1, "MaxAttempts": 10}
    )
    create_anew(scene.kinesis, scene.stream, before)
    scene.put(b"new")
    scene.journal.wait_for_data(b"new")
    assert not scene.journal.calls("shard_ended")


def test_what_a_kcl_prepared_at_latest_is_not_forgotten(scene: Scene) -> None:
    """A KCL's LATEST has no instant; writing one down must leave its pending checkpoint alone."""
    at = scene.application(initial_position="latest")
    at.worker()._streams.all()[0].syncer.sync()
    table = at.table()
    row = table.get(SHARD)
    assert row is not None
    pending = PendingCheckpoint(ExtendedSequenceNumber("49" + "0" * 54, 3), b"half done")
    table.write(
        requests.prepare(
            table.write(requests.checkpoint(row, ExtendedSequenceNumber(LATEST))), pending
        )
    )

    crashed = Journal()

    def fail(_: Any) -> None:
        raise ValueError("not yet")

    worker = scene.start(on_initialize=fail, journal=crashed, worker_id="w")
    crashed.wait(lambda: len(crashed.calls("initialize")) == 2)
    worker.shutdown(PATIENCE)
    scene.start(worker_id="w")
    scene.journal.wait(lambda: bool(scene.journal.calls("initialize")))
    for _, call, shard in [*crashed.entries, *scene.journal.entries]:
        if call == "initialize":
            assert shard.pending_checkpoint == pending
    row = table.get(SHARD)
    assert row is not None
    assert row.timestamp_ms is not None


def test_the_rest_of_an_aggregated_record_is_delivered_whole_to_who_does_not_unpack(
    scene: Scene,
) -> None:
    """It was checkpointed in its middle by a worker that does."""
    (packed,) = aggregate([("k", None, data) for data in (b"1", b"2", b"3")])
    scene.put(packed.data)
    scene.put(b"after")

    def checkpoint(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].sub_sequence_number == 0:
            checkpointer.checkpoint(batch.records[1])

    worker = scene.start(on_records=checkpoint)
    scene.journal.wait_for_data(b"after")
    worker.shutdown(PATIENCE)
    whole = Journal()
    scene.start({"deaggregate": False}, journal=whole)
    whole.wait_for_data(b"after")
    assert whole.data() == [packed.data, b"after"]


def test_a_processor_that_shuts_its_worker_down_does_not_wait_for_itself(scene: Scene) -> None:
    workers: list[Worker] = []
    started = threading.Event()

    def shut_down(_: Any, checkpointer: Any) -> None:
        assert started.wait(PATIENCE)
        assert not workers[0].shutdown(PATIENCE)
        checkpointer.checkpoint()

    scene.put(b"1")
    workers.append(scene.start(on_records=shut_down))
    started.set()
    assert workers[0].wait(PATIENCE / 2)
    assert [call for _, call in scene.journal.calls()] == [
        "initialize", "process_records", "shutdown_requested", "lease_lost",
    ]  # fmt: skip


def test_a_worker_is_started_once(scene: Scene) -> None:
    worker = scene.start()
    with pytest.raises(RuntimeError, match="once"):
        worker.start()


def test_leases_of_an_application_of_several_streams_are_left_alone(scene: Scene) -> None:
    """As the KCL: rows that were written in one mode mean nothing to the other.

    A table that has only such rows is refused: `test_s1_several_streams.py`.
    """
    dynamodb = scene.server.client("dynamodb")
    scene.start().shutdown(10)
    own = set(rows_of(dynamodb, scene.stream))
    assert own == {SHARD}
    key = f"123456789012:other:1700000000:{SHARD}"
    attributes = {
        "streamName": {"S": "123456789012:other:1700000000"},
        "shardId": {"S": SHARD},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": str(2**128 - 1)},
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


def test_an_error_that_nobody_foresaw_does_not_end_the_care_for_leases(scene: Scene) -> None:
    worker = scene.application({"audit_interval": 0.2, "cleanup_interval": 0.2}).worker()
    step, failed = worker._streams.all()[0].syncer.step, threading.Event()

    def fails_once(*look: Any, audits: bool) -> float:
        if failed.is_set():
            return step(*look, audits=audits)
        failed.set()
        raise KeyError("something")

    worker._streams.all()[0].syncer.step = fails_once  # type: ignore[method-assign, assignment]
    worker.start()
    try:
        assert failed.wait(PATIENCE)
        scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 1)
        for key in rows_of(scene.dynamodb, scene.stream):
            scene.dynamodb.delete_item(TableName=scene.stream, Key={"leaseKey": {"S": key}})
        scene.journal.wait(lambda: len(scene.journal.calls("initialize")) == 2)
    finally:
        worker.shutdown(10)
