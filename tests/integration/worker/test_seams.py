"""What goes wrong in between: no shard hangs, and no record is lost, without a word."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.compat.kclpy.adapter import make_factory
from sparkinesis.compat.kclpy.v3 import processor as kclpy
from sparkinesis.lease.extended_sequence_number import LATEST, ExtendedSequenceNumber
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault
from sparkinesis.stream.calls.answers.decoding import decode_page
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import DeadLetter, Stop
from tests.journal import PATIENCE, Journal, Journaling

Start = Callable[[Application], Worker]
Make = Callable[..., Application]
SHARD = "shardId-000000000000"


@pytest.fixture
def stream(kinesis: Any) -> str:
    """A stream of one shard."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    kinesis.create_stream(StreamName=name, ShardCount=1)
    return name


@pytest.fixture
def faults(server: LocalServer) -> Iterator[Callable[[Callable[[Call], Fault | None]], None]]:
    def use(plan: Callable[[Call], Fault | None]) -> None:
        server.kinesis.faults = plan

    yield use
    server.kinesis.faults = None


def put(kinesis: Any, stream: str, *datas: bytes) -> None:
    for data in datas:
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k")


def first_times(times: int, error: BaseException, then: Callable[..., Any]) -> Callable[..., Any]:
    left = [error] * times

    def call(*args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop()
        return then(*args, **kwargs)

    return call


def test_an_answer_that_is_no_page_does_not_end_the_fetching(
    *,
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of a proxy that answers with a page of its own, and status 200."""
    broken = first_times(2, ValueError("JSON is malformed"), decode_page)
    monkeypatch.setattr("sparkinesis.stream.calls.transport.decode_page", broken)
    put(kinesis, stream, b"1", b"2")
    start(application())
    journal.wait_for_data(b"1", b"2")
    assert journal.data() == [b"1", b"2"]


def test_a_page_that_could_not_be_unpacked_is_fetched_again(
    *,
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_memory = first_times(2, MemoryError(), make_batch)
    monkeypatch.setattr("sparkinesis.worker.lifecycle.shard.intake.make_batch", no_memory)
    put(kinesis, stream, b"1")
    start(application())
    journal.wait(lambda: bool(journal.calls("initialize")))
    put(kinesis, stream, b"2", b"3")
    journal.wait_for_data(b"3")
    assert journal.data() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("policy", ["stop", "dead letter"])
def test_a_lease_that_was_lost_while_processing_is_no_failure_of_its_records(
    *, application: Make, start: Start, kinesis: Any, stream: str, journal: Journal, policy: str
) -> None:
    dead: list[Any] = []
    on_error = Stop() if policy == "stop" else DeadLetter(dead.append)
    workers: list[Worker] = []
    started = threading.Event()

    def lose_it_once(_: Any, checkpointer: Any) -> None:
        assert started.wait(PATIENCE)
        if not journal.calls("failed"):
            workers[0]._coordinator.held()[SHARD].lose("the test says so")
        checkpointer.checkpoint()

    put(kinesis, stream, b"1")
    workers.append(
        start(
            application(
                processor=lambda: Journaling(journal, on_records=lose_it_once), on_error=on_error
            )
        )
    )
    started.set()
    journal.wait_for_data(b"1")
    assert journal.calls()[:3] == [(SHARD, call) for call in ("initialize", "failed", "lease_lost")]
    assert not dead


@pytest.mark.parametrize("policy", ["stop", "dead letter"])
def test_a_lease_table_that_is_away_is_no_failure_of_the_records(
    *,
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    journal: Journal,
    faults: Callable[[Callable[[Call], Fault | None]], None],
    policy: str,
) -> None:
    dead: list[Any] = []
    on_error = Stop() if policy == "stop" else DeadLetter(dead.append)

    def throttle(call: Call) -> Fault | None:
        writes = call.operation in {"UpdateItem", "BatchExecuteStatement"}
        if writes and call.stream in {stream, None} and not journal.calls("failed"):
            return Fault.error("ProvisionedThroughputExceededException")
        return None

    def checkpoint(_: Any, checkpointer: Any) -> None:
        if not journal.calls("failed"):
            faults(throttle)
        checkpointer.checkpoint()

    put(kinesis, stream, b"1")
    start(
        application(
            options={"failover_time": 6.0},
            processor=lambda: Journaling(journal, on_records=checkpoint),
            on_error=on_error,
        )
    )
    journal.wait_for_data(b"1")
    assert [call for _, call in journal.calls()] == ["initialize", "failed", "process_records"]
    assert not dead


def test_a_thread_that_cannot_be_started_costs_its_shard_only_a_moment(
    *,
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process with a thousand shards may be at its limit of threads."""
    begin, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def scarce(self: threading.Thread) -> None:
        if self.name == f"{stream}-{SHARD}" and failures:
            raise failures.pop()
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    put(kinesis, stream, b"1")
    worker = start(application())
    journal.wait_for_data(b"1")
    assert worker.shutdown(PATIENCE)


def test_what_ends_a_thread_does_not_end_the_consumer(
    *, application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """sys.exit() in a user's function is as any other error; no fetching is left behind."""
    refuse = first_times(2, SystemExit(1), lambda _: journal.write(SHARD, "dead letter"))

    def fail(batch: Any, _: Any) -> None:
        if batch.records[0].data == b"bad":
            raise ValueError("bad")

    def exit_once(_: Any) -> None:
        if len(journal.calls("initialize")) == 1:
            raise SystemExit(1)

    put(kinesis, stream, b"bad", b"good")
    worker = start(
        application(
            processor=lambda: Journaling(journal, on_records=fail, on_initialize=exit_once),
            on_error=DeadLetter(refuse),
        )
    )
    journal.wait_for_data(b"good")
    assert [c for _, c in journal.calls("initialize", "lease_lost")] == ["initialize"] * 2
    assert len(journal.calls("dead letter")) == 1
    assert worker._settings.fetchers.unfinished == 1


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_a_stream_that_was_deleted_and_made_anew_is_read(
    *,
    application: Make,
    start: Start,
    kinesis: Any,
    stream: str,
    journal: Journal,
    faults: Callable[[Callable[[Call], Fault | None]], None],
) -> None:
    """Its shards have the ids of before: a lease that has ended would never be read again.

    A consumer that was registered is gone, too.
    """

    def watch(call: Call) -> None:
        if call.operation in {"ListShards", "SubscribeToShard"} and call.stream == stream:
            journal.write(SHARD, "looked for")

    put(kinesis, stream, b"old")
    start(application())
    journal.wait_for_data(b"old")
    kinesis.delete_stream(StreamName=stream, EnforceConsumerDeletion=True)
    faults(watch)
    journal.wait(lambda: bool(journal.calls("looked for", "shard_ended")))
    kinesis.get_waiter("stream_not_exists").wait(
        StreamName=stream, WaiterConfig={"Delay": 1, "MaxAttempts": 10}
    )
    kinesis.create_stream(StreamName=stream, ShardCount=1)
    put(kinesis, stream, b"new")
    journal.wait_for_data(b"new")
    assert not journal.calls("shard_ended", "lease_lost")


def test_a_processor_of_amazon_kclpy_that_exits_leaves_no_dead_letters(
    *, application: Make, start: Start, kinesis: Any, stream: str
) -> None:
    class Exits(kclpy.RecordProcessorBase):
        def process_records(self, process_records_input: Any) -> None:
            sys.exit(3)

        def shard_ended(self, shard_ended_input: Any) -> None:
            """Never called."""

    dead: list[Any] = []
    put(kinesis, stream, b"1")
    worker = start(application(processor=make_factory(Exits), on_error=DeadLetter(dead.append)))
    assert worker.wait(PATIENCE)
    assert not dead


def test_what_a_kcl_prepared_at_latest_is_not_forgotten(
    *, application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """A KCL's LATEST has no instant; writing one down must leave its pending checkpoint alone."""
    at = application(initial_position="latest")
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

    worker = start(
        application(processor=lambda: Journaling(crashed, on_initialize=fail), worker_id="w")
    )
    crashed.wait(lambda: len(crashed.calls("initialize")) == 2)
    worker.shutdown(PATIENCE)
    start(application(worker_id="w"))
    journal.wait(lambda: bool(journal.calls("initialize")))
    for _, call, shard in [*crashed.entries, *journal.entries]:
        if call == "initialize":
            assert shard.pending_checkpoint == pending
    row = table.get(SHARD)
    assert row is not None
    assert row.timestamp_ms is not None


def test_the_rest_of_an_aggregated_record_is_delivered_whole_to_who_does_not_unpack(
    *, application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """It was checkpointed in its middle by a worker that does."""
    (packed,) = aggregate([("k", None, data) for data in (b"1", b"2", b"3")])
    put(kinesis, stream, packed.data, b"after")

    def checkpoint(batch: Any, checkpointer: Any) -> None:
        if batch.records[0].sub_sequence_number == 0:
            checkpointer.checkpoint(batch.records[1])

    worker = start(application(processor=lambda: Journaling(journal, on_records=checkpoint)))
    journal.wait_for_data(b"after")
    worker.shutdown(PATIENCE)
    whole = Journal()
    start(application(options={"deaggregate": False}, processor=lambda: Journaling(whole)))
    whole.wait_for_data(b"after")
    assert whole.data() == [packed.data, b"after"]


def test_a_processor_that_shuts_its_worker_down_does_not_wait_for_itself(
    *, application: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    workers: list[Worker] = []
    started = threading.Event()

    def shut_down(_: Any, checkpointer: Any) -> None:
        assert started.wait(PATIENCE)
        assert not workers[0].shutdown(PATIENCE)
        checkpointer.checkpoint()

    put(kinesis, stream, b"1")
    workers.append(start(application(processor=lambda: Journaling(journal, on_records=shut_down))))
    started.set()
    assert workers[0].wait(PATIENCE / 2)
    assert [call for _, call in journal.calls()] == [
        "initialize", "process_records", "shutdown_requested", "lease_lost",
    ]  # fmt: skip


def test_a_worker_is_started_once(
    *, application: Make, start: Start, stream: str, journal: Journal
) -> None:
    worker = start(application())
    with pytest.raises(RuntimeError, match="once"):
        worker.start()


def test_a_checkpoint_before_anything_was_delivered_writes_nothing_and_is_no_error(
    *, application: Make, start: Start, stream: str, journal: Journal
) -> None:
    """As in the KCL; shutdown_requested checkpoints whether or not anything came."""
    worker = start(
        application(
            processor=lambda: Journaling(journal, on_shutdown=lambda given: given.checkpoint())
        )
    )
    journal.wait(lambda: bool(journal.calls("initialize")))
    assert worker.shutdown(PATIENCE)
    assert journal.calls("shutdown_requested") == [(SHARD, "shutdown_requested")]
