"""`sparkinesis.testing` runs applications of each way, and tells what they did."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparkinesis import (
    Application,
    Checkpointer,
    CredentialSource,
    DeadLetter,
    ProcessorError,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    Retry,
    Skip,
    Stop,
    WorkerOptions,
    aggregate,
)
from sparkinesis.events import BatchFailed, ShardEnded, WorkerEnded, WorkerStarted
from sparkinesis.status import ShardState
from sparkinesis.testing import Result, Sandbox
from sparkinesis.worker.batches.user_record import UserRecord
from tests.integration.worker.scene import Gate

Run = Callable[..., Result]
LETTERS = ["a", "b", "c"]


def application(processor: Any, **given: Any) -> Application:
    return Application("app", "flights", processor, **{"region": "eu-west-1", **given})


def data(result: Result) -> list[bytes]:
    return [record.data for record in result.processed]


class Seen:
    """Processes by all means: a function, a coroutine, a class, a record at a time."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.calls: list[str] = []

    def by_function(self, batch: RecordBatch) -> None:
        self.data += [record.data for record in batch]

    async def by_coroutine(self, batch: RecordBatch) -> None:
        await asyncio.sleep(0)
        self.by_function(batch)

    def by_record(self, record: UserRecord) -> None:
        self.data.append(record.data)

    def by_class(self) -> RecordProcessor:
        return _Processor(self)


class _Processor(RecordProcessor):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def initialize(self, shard: ProcessorShard) -> None:
        self._seen.calls.append("initialize")

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self._seen.by_function(batch)
        checkpointer.checkpoint()

    def lease_lost(self) -> None:
        self._seen.calls.append("lease_lost")

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        self._seen.calls.append("shutdown_requested")


WAYS = {
    "function": (Seen.by_function, None),
    "coroutine": (Seen.by_coroutine, None),
    "class": (Seen.by_class, None),
    "concurrency": (Seen.by_record, 4),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Seen, Application]:
    method, concurrency = WAYS[request.param]
    seen = Seen()
    processor = getattr(seen, method.__name__)
    return seen, application(processor, options=WorkerOptions(concurrency=concurrency))


def test_each_way_processes_and_checkpoints(
    way: tuple[Seen, Application], run_application: Run
) -> None:
    seen, app = way
    result = run_application(app, LETTERS)
    assert seen.data == data(result) == [b"a", b"b", b"c"]
    assert list(result.checkpoints.values()) == [result.processed[-1].position]
    assert any(isinstance(event, WorkerStarted) for event in result.events)


def test_what_is_not_checkpointed_comes_again_after_a_crash(
    way: tuple[Seen, Application], run_application: Run
) -> None:
    seen, app = way
    result = run_application(app, LETTERS, crash_after=2)
    assert seen.data == [b"a", b"b", b"a", b"b", b"c"]
    assert list(result.checkpoints.values()) == [result.processed[-1].position]
    # No method of the crashed worker's is called, as of a process that was killed.
    last = ["shutdown_requested", "lease_lost"]
    assert seen.calls in ([], ["initialize", "initialize", *last])


def test_a_crash_after_the_last_record(run_application: Run) -> None:
    seen = Seen()
    run_application(application(seen.by_function), LETTERS, crash_after=3)
    assert seen.data == [b"a", b"b", b"c"] * 2


def test_what_was_checkpointed_does_not_come_again(kinesis: Sandbox) -> None:
    seen = Seen()
    with kinesis.run(application(seen.by_class)) as run:
        run.put(["a"])
        run.crash_after(1)
        run.put(["b", "c"])
        run.crash()
    assert seen.data == [b"a", b"b", b"b", b"c"]


def test_a_crash_within_an_aggregate(kinesis: Sandbox) -> None:
    """A function that checkpoints within the aggregate gets the rest of the aggregate again."""
    seen = Seen()

    def handle(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        for record in batch:
            seen.by_record(record)
            if record.sub_sequence_number == 1:
                checkpointer.checkpoint(record)

    (blob,) = aggregate([("k", None, letter.encode()) for letter in "abcd"])
    options = WorkerOptions(checkpoint_seconds=3_000)
    with kinesis.run(application(handle, options=options)) as run:
        run.put([blob])
        run.crash()
    assert seen.data == [b"a", b"b", b"c", b"d", b"c", b"d"]


def test_reshards_and_several_streams(kinesis: Sandbox) -> None:
    seen = Seen()
    app = Application(
        "app", processor=seen.by_function, streams=["one", "two"], initial_position="trim_horizon"
    )
    with kinesis.run(app, shards=2) as run:
        run.put([(str(n), f"one {n}") for n in range(20)], "one")
        kinesis.split("one")
        kinesis.merge("two")
        run.put([(str(n), f"two {n}") for n in range(20)], "two")
        run.crash()
        run.put([(str(n), f"one {n}") for n in range(20, 40)], "one")
        run.wait(lambda: sum(isinstance(one, ShardEnded) for one in run.result.events) == 3)
    assert set(seen.data) == {f"{of}".encode() for of in _all()}
    assert len(seen.data) == 60, "all was checkpointed before the crash"


def _all() -> list[str]:
    return [f"one {n}" for n in range(40)] + [f"two {n}" for n in range(20)]


def test_time_is_moved_by_hand(kinesis: Sandbox) -> None:
    looked: list[tuple[float, int]] = []

    def handle(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        assert batch.fetched_at is not None
        looked.append((batch.fetched_at.timestamp(), len(batch)))

    options = WorkerOptions(call_even_for_empty_batches=True, checkpoint_seconds=3_000)
    began = kinesis.time()
    with kinesis.run(application(handle, options=options)) as run:
        run.put(["a"])
        assert (began, 1) in looked
        assert {at for at, _ in looked} == {began}
        (record,) = run.result.processed
        assert record.approximate_arrival_timestamp == kinesis.now
        kinesis.advance(2_999)
        assert looked[-1] == (began + 2_999, 0)
        assert run.result.checkpoints["shardId-000000000000"].is_sentinel
        kinesis.advance(1)
        assert set(run.result.checkpoints.values()) == {record.position}, "it is written by then"
        kinesis.advance(86_400)
        run.put(["b"])
        assert run.result.processed[-1].approximate_arrival_timestamp == kinesis.now
    assert [event for event in run.result.events if type(event).__name__ == "LeaseLost"] == []


@pytest.mark.parametrize("policy", [Skip(), Retry(3, then=Skip()), DeadLetter(lambda _: None)])
def test_records_that_are_given_up(policy: Any, run_application: Run) -> None:
    def handle(batch: RecordBatch) -> None:
        if any(record.data == b"b" for record in batch):
            raise ValueError("bad")

    result = run_application(application(handle, on_error=policy), LETTERS)
    assert data(result) == [b"a", b"c"]
    assert "bad" in result.failures[0].error


def test_a_shard_that_is_stopped(run_application: Run) -> None:
    def handle(batch: RecordBatch) -> None:
        raise ValueError("bad")

    result = run_application(application(handle, on_error=Stop()), LETTERS)
    assert data(result) == []
    assert sum(isinstance(event, BatchFailed) for event in result.events) == 1


def test_a_handler_that_always_fails_ends_the_test_with_its_error(run_application: Run) -> None:
    def handle(batch: RecordBatch) -> None:
        raise ValueError("bad")

    with pytest.raises(AssertionError, match=r"3 records are not processed.*ValueError: bad"):
        run_application(application(handle), LETTERS, timeout=0.3)


def test_a_condition_of_the_tests_own(run_application: Run) -> None:
    seen = Seen()
    run_application(application(seen.by_function), LETTERS, until=lambda: len(seen.data) >= 1)
    assert seen.data[:1] == [b"a"]
    with pytest.raises(AssertionError, match=r"Not within 0\.1 s"):
        run_application(application(seen.by_function), [], until=lambda: False, timeout=0.1)


def test_a_crash_that_never_comes(run_application: Run) -> None:
    with pytest.raises(AssertionError, match="crash_after is 4, and the run processed 3"):
        run_application(application(Seen().by_function), LETTERS, crash_after=4)


def test_a_crash_amid_a_call(kinesis: Sandbox) -> None:
    """The call is at work when the worker dies, and its records come again."""
    gate = Gate()
    seen: list[bytes] = []

    def handle(batch: RecordBatch) -> None:
        if not gate.at_work.is_set():
            gate()
        seen.extend(record.data for record in batch)

    with kinesis.run(application(handle)) as run:
        run.put(["a"], until=gate.at_work.is_set)
        run.crash()
        assert seen == [b"a"]
        gate.go_on.set()
        run.put(["b"])
    assert seen.count(b"b") == 1


def test_what_a_dead_call_ends_comes_again_all_the_same(kinesis: Sandbox) -> None:
    gates = [Gate(), Gate()]
    left = iter(gates)

    def handle(batch: RecordBatch) -> None:
        next(left)()

    with kinesis.run(application(handle)) as run:
        run.put(["a"], until=gates[0].at_work.is_set)
        crashing = threading.Thread(target=run.crash)
        crashing.start()
        gates[1].wait_for_work()
        gates[0].go_on.set()
        run.wait(lambda: len(run.result.processed) == 1)
        crashing.join(0.05)
        assert crashing.is_alive(), "the record is not processed by a live worker"
        gates[1].go_on.set()
        crashing.join()
        assert data(run.result) == [b"a", b"a"]


def test_a_crash_leaves_the_shards_with_another_worker(run_application: Run) -> None:
    result = run_application(application(Seen().by_function), LETTERS, crash_after=1)
    ended = [event for event in result.events if isinstance(event, WorkerEnded)]
    assert [event.worker_id for event in ended] == ["worker-2"], "the dead tell nothing"


def test_after_a_crash_the_shards_are_read_again(kinesis: Sandbox) -> None:
    with kinesis.run(application(Seen().by_function), shards=3) as run:
        run.put(LETTERS)
        run.crash()
        assert [one.state for one in run.worker.status()] == [ShardState.PROCESSING] * 3


def test_what_is_too_old_after_a_crash_is_not_waited_for(kinesis: Sandbox) -> None:
    seen = Seen()
    options = WorkerOptions(skip_older_than=100, checkpoint_seconds=3_000)
    with kinesis.run(application(seen.by_function, options=options)) as run:
        run.put(["a"])
        kinesis.advance(101)
        run.put(["b"])
        run.crash()
    assert seen.data == [b"a", b"b", b"b"]


def test_the_place_and_the_exporters_of_production_are_left_out(run_application: Run) -> None:
    class Exporter:
        def open(self, *_: object) -> None:
            raise AssertionError("no exporter is opened in a test")

    options = WorkerOptions(metrics=(Exporter(),), http="127.0.0.1:1")  # type: ignore[arg-type]
    arn = "arn:aws:kinesis:eu-west-1:999999999999:stream/flights"
    seen = Seen()
    credentials = CredentialSource(role_arn="arn:aws:iam::999999999999:role/reader")
    app = Application("app", arn, seen.by_function, None, options=options, credentials=credentials)
    run_application(app, LETTERS)
    assert seen.data == [b"a", b"b", b"c"]


def test_an_application_that_asks_for_its_own_shutdown(run_application: Run) -> None:
    class Ends(RecordProcessor):
        def initialize(self, shard: ProcessorShard) -> None:
            shard.request_shutdown()

        def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
            raise AssertionError("no call is expected")

    assert data(run_application(application(Ends), LETTERS)) == []


def test_records_that_were_put_before_are_waited_for(kinesis: Sandbox) -> None:
    kinesis.create_stream("flights")
    kinesis.put(LETTERS, "flights")
    seen = Seen()
    app = application(seen.by_function, initial_position="trim_horizon")
    with kinesis.run(app) as run:
        run.wait()
        assert seen.data == [b"a", b"b", b"c"]
    kinesis.split("flights")
    with kinesis.run(app) as run:
        run.put(["d"])
        run.crash()
    with kinesis.run(app) as run:
        run.wait()
    assert seen.data == [b"a", b"b", b"c", b"d"]


def test_time_can_be_moved_during_a_call(kinesis: Sandbox) -> None:
    gate = Gate()
    with kinesis.run(application(lambda batch: gate()), timeout=5) as run:
        run.put(["a"], until=gate.at_work.is_set)
        kinesis.advance(60)
        gate.go_on.set()
        run.wait()


def test_a_mistake_of_the_program_is_raised(run_application: Run) -> None:
    def handle(batch: RecordBatch) -> Any:
        return asyncio.sleep(0)

    with pytest.raises(Exception, match="coroutine"):
        run_application(application(handle), LETTERS)


def test_a_loop_on_the_sandbox(kinesis: Sandbox) -> None:
    kinesis.create_stream("flights")
    app = kinesis.application(application(None, initial_position="trim_horizon"))
    kinesis.put(LETTERS, "flights")
    with app.records() as records:
        for record in records:
            records.checkpoint()
            if record.data == b"b":
                break
    with app.records() as records:
        assert next(iter(records)).data == b"c"


def test_no_credentials_of_aws_are_in_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of AWS")
    monkeypatch.setenv("AWS_PROFILE", "of AWS")
    with Sandbox():
        assert os.environ["AWS_ACCESS_KEY_ID"] == "local"
        assert "AWS_PROFILE" not in os.environ
    assert os.environ["AWS_ACCESS_KEY_ID"] == os.environ["AWS_PROFILE"] == "of AWS"


@pytest.mark.parametrize("record", [7, ("k",), ("k", 7), None])
def test_what_is_no_record(kinesis: Sandbox, record: Any) -> None:
    kinesis.create_stream()
    with pytest.raises(TypeError):
        kinesis.put([record])


@pytest.mark.parametrize("concurrency", [None, 2])
def test_an_object_of_asyncio_serves_the_worker_after_a_crash_too(
    run_application: Run, concurrency: int | None
) -> None:
    contend = _contending()

    async def handle(batch: object) -> None:
        await contend()

    ours = application(handle, options=WorkerOptions(concurrency=concurrency))
    result = run_application(ours, LETTERS, crash_after=1)
    assert {record.data for record in result.processed} == {b"a", b"b", b"c"}
    assert result.failures == ()


@pytest.mark.parametrize("concurrency", [None, 2])
def test_an_object_of_another_event_loop_makes_no_dead_letters(
    run_application: Run, concurrency: int | None
) -> None:
    contend, letters = _contending(), list[Any]()

    async def handle(batch: object) -> None:
        await contend()

    asyncio.run(contend())  # the lock is bound to this loop now
    to_letters = application(
        handle,
        on_error=Retry(2, then=DeadLetter(letters.append)),
        options=WorkerOptions(concurrency=concurrency),
    )
    with pytest.raises(ProcessorError, match=r"different event loop.*Make the object where it is"):
        run_application(to_letters, LETTERS)
    assert letters == []


def _contending() -> Callable[[], Coroutine[Any, Any, object]]:
    """A function with a lock, which belongs to the event loop that it first runs in."""
    lock = asyncio.Lock()

    async def hold() -> None:
        async with lock:
            await asyncio.sleep(0)

    async def contend() -> None:
        await asyncio.gather(hold(), hold())

    return contend
